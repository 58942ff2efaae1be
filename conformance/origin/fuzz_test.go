package origin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"fetchd/conformance/origin"
)

// FuzzGrammar checks that any path is either in the grammar or is answered with 400 and a reason,
// without a delay or a panic. The fuzzed steps come second in the script, so that they are parsed
// but not run.
func FuzzGrammar(f *testing.F) {
	for _, seed := range []string{
		"200", "503:retry-after=1,retry-after2=2", "302:to=%2Fx", "200:drip=1@1s,stall=2", "reset:at=in-body,after=3",
		"200:header=A=b,header2=C=d", "h2-goaway:last=this,code=0x1", "200:coding=br,coding-cut=3", "200:body=%", ":", "20:,=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, step string) {
		o := origin.New(origin.Config{})
		path := "/s/k/200/" + step
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return // not a path
		}
		recorder := httptest.NewRecorder()
		o.ServeHTTP(recorder, &http.Request{Method: http.MethodGet, URL: u, Body: http.NoBody, Header: http.Header{}})
		refused := recorder.Code == http.StatusBadRequest && recorder.Header().Get("Origin-Error") != ""
		if recorder.Code != http.StatusOK && !refused || refused != (len(o.Requests("k")) == 0) {
			t.Errorf("%q: %d, %v", path, recorder.Code, recorder.Header())
		}
	})
}
