package server_test

import (
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "fetchd/gen/fetchd/v1"
)

// refused is a request with one fault, and the field paths that must be reported.
type refused struct {
	name   string
	change func(*pb.FetchRequest)
	want   []string
}

func badURLs() []refused {
	var rows []refused
	for _, row := range []struct{ name, url string }{
		{"missing", ""},
		{"relative", "/" + marker},
		{"no scheme", "//origin.example/" + marker},
		{"no host", "http:///" + marker},
		{"opaque", "http:" + marker},
		{"host only", marker + ".example"},
		{"ftp", "ftp://origin.example/" + marker},
		{"file", "file:///" + marker},
		{"javascript", "javascript:" + marker},
		{"over 8 KiB", "http://origin.example/" + marker + strings.Repeat("a", 8<<10)},
		{"over 8 KiB once encoded", "http://origin.example/?" + marker + strings.Repeat("é", 4000)},
		{"zone", "http://[fe80::1%25" + marker + "]/"},
		{"user", "http://" + marker + "@origin.example/"},
		{"user and password", "http://user:" + marker + "@origin.example/"},
		{"empty user", "http://@origin.example/" + marker},
		{"newline", "http://origin.example/\n" + marker},
		{"NUL", "http://origin.example/\x00" + marker},
		{"DEL", "http://origin.example/\x7f" + marker},
		{"space", "http://origin.example/ " + marker},
		{"tab before it", "\thttp://origin.example/" + marker},
		{"host is a number", "http://2130706433/" + marker},
		{"host is a hexadecimal number", "http://0x7f000001/" + marker},
		{"host is a short address", "http://127.1/" + marker},
		{"host is an octal address", "http://0177.0.0.1/" + marker},
		{"host is a hexadecimal address", "http://0x7f.0.0.0x1/" + marker},
		{"host ends in a number", "http://origin.1/" + marker},
		{"host is an address of five parts", "http://1.2.3.4.5/" + marker},
		{"host is an address out of range", "http://256.0.0.1/" + marker},
		{"host with a space", "http://origin%20" + marker + "/"},
		{"empty label", "http://origin..example/" + marker},
		{"bad bracket", "http://[" + marker + "]/"},
		{"port 0", "http://origin.example:0/" + marker},
		{"port 65536", "http://origin.example:65536/" + marker},
		{"invalid port", "http://origin.example:" + marker + "/"},
		{"bad escape", "http://origin.example/%zz" + marker},
	} {
		rows = append(rows, refused{"URL " + row.name, func(in *pb.FetchRequest) { in.Url = row.url }, []string{"url"}})
	}
	return rows
}

func badMethods() []refused {
	var rows []refused
	for _, method := range []string{"get", "Get", "TRACE", "CONNECT", "PROPFIND", "GET ", " GET", "GET\r\nX: y", "\x00"} {
		rows = append(rows, refused{"method " + method, func(in *pb.FetchRequest) { in.Method = method }, []string{"method"}})
	}
	for _, method := range []string{"", "GET", "HEAD", "OPTIONS"} {
		rows = append(rows, refused{"body with method " + method, func(in *pb.FetchRequest) {
			in.Method, in.Body = method, []byte(marker)
		}, []string{"body"}})
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		rows = append(rows, refused{"body over 1 MiB with " + method, func(in *pb.FetchRequest) {
			in.Method, in.Body = method, append(make([]byte, 1<<20), marker...)
		}, []string{"body"}})
	}
	return rows
}

// header adds a line after the header line that every request has.
func header(h *pb.Header) func(*pb.FetchRequest) {
	return func(in *pb.FetchRequest) { in.Headers = append(in.Headers, h) }
}

func badHeaders() []refused {
	var rows []refused
	for _, name := range []string{"Connection", "content-length", "Expect", "Forwarded", "host", "HTTP2-Settings", "Idempotency-Key",
		"idempotency-key", "Keep-Alive", "Te", "Trailer", "transfer-encoding", "Upgrade", "Via",
		"Proxy-Authorization", "proxy-connection", "Sec-Fetch-Site", "X-Forwarded-For", "Metadata", "metadata-flavor",
		"X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds", "X-Google-Metadata-Request"} {
		rows = append(rows, refused{"header " + name, header(&pb.Header{Name: name, Value: marker}), []string{"headers[1].name"}})
	}
	for _, row := range []struct{ name, header string }{
		{"without a name", ""},
		{"name with a space", "X Y"},
		{"name that is a whole line", "Authorization: Bearer " + marker},
		{"name that is not ASCII", "X-É"},
		{"name that breaks the line", "X\r\nY"},
		{"name with an underscore", "X_Forwarded_For"},
	} {
		rows = append(rows, refused{"header " + row.name, header(&pb.Header{Name: row.header, Value: marker}), []string{"headers[1].name"}})
	}
	for _, row := range []struct{ name, value string }{{"CR", "\r"}, {"LF", "\n"}, {"NUL", "\x00"}, {"DEL", "\x7f"}, {"a second line", "\r\nX: y"}} {
		rows = append(rows,
			refused{"value with " + row.name, header(&pb.Header{Name: "X-A", Value: marker + row.value}), []string{"headers[1].value"}},
			refused{"raw value with " + row.name, header(&pb.Header{Name: "X-A", RawValue: []byte(marker + "\xff" + row.value)}), []string{"headers[1].raw_value"}})
	}
	many := func(n, size int) func(*pb.FetchRequest) {
		return func(in *pb.FetchRequest) {
			for len(in.Headers) < n {
				in.Headers = append(in.Headers, &pb.Header{Name: "X-A", Value: marker + repeat(size)})
			}
		}
	}
	return append(rows,
		refused{"value and raw value", header(&pb.Header{Name: "X-A", Value: marker, RawValue: []byte(marker)}), []string{"headers[1]"}},
		refused{"65 headers", many(65, 0), []string{"headers"}},
		refused{"65 headers and a condition", func(in *pb.FetchRequest) {
			many(65, 0)(in)
			in.Precondition = &pb.Precondition{Etags: []string{`"a"`}, ModifiedSinceTime: new(timestamppb.Timestamp)}
		}, []string{"headers"}},
		refused{"headers over 32 KiB", many(4, 11<<10), []string{"headers"}},
		refused{"raw values over 32 KiB", header(&pb.Header{Name: "X-A", RawValue: []byte(marker + repeat(32<<10))}), []string{"headers"}},
	)
}
