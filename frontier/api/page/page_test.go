package page

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "fetchd/gen/frontier/v1"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	h := Handler(Config{Token: true, Version: "v1"})
	for target, want := range map[string]string{
		"/console/": "<title>frontier</title>", "/console/frontier.css": ".meter", "/console/base.css": ":root", "/console/call.js": "Refused",
		"/console/service.json": `{"token":true,"version":"v1"}`,
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", target, nil))
		if rec.Code != 200 || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %d, %.200s; want %s in it", target, rec.Code, rec.Body, want)
		}
	}
}

// TestFields checks that the fields which the scripts read are in the messages of the API.
func TestFields(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		file, variable string
		message        protoreflect.ProtoMessage
		least          int
	}{
		{"state.js", "stats", &pb.StatsResponse{}, 14},
		{"state.js", "c", &pb.ClassCount{}, 3},
		{"state.js", "(?:h|host)", &pb.HostStats{}, 8},
		{"state.js", "w", &pb.WorkerStats{}, 4},
		{"app.js", "stats", &pb.StatsResponse{}, 2},
		{"why.js", "why", &pb.WhyResponse{}, 16},
		{"outcomes.js", "o", &pb.RecordedOutcome{}, 8},
	} {
		t.Run(row.file+" "+row.variable, func(t *testing.T) {
			text, err := files.ReadFile("page/" + row.file)
			if err != nil {
				t.Fatal(err)
			}
			fields := row.message.ProtoReflect().Descriptor().Fields()
			seen := make(map[string]bool)
			for _, m := range regexp.MustCompile(`[^\w$.'/]`+row.variable+`\.([a-z_]+)\b`).FindAllStringSubmatch(string(text), -1) {
				seen[m[1]] = true
				if fields.ByName(protoreflect.Name(m[1])) == nil {
					t.Errorf("%s has no field %s", fields.Get(0).Parent().Name(), m[1])
				}
			}
			if len(seen) < row.least {
				t.Errorf("only %d fields were found: %v", len(seen), seen)
			}
		})
	}
}
