package get

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"fetchd/cmd/fetchctl/service"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// bodyPart is one value of a flag that adds to the request body.
type bodyPart struct {
	flag, value string
	left        int // words of the command line behind it
}

// bodyParts are the values of a flag in the order of the command line.
type bodyParts []bodyPart

// Decode implements kong.MapperValue.
func (p *bodyParts) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("data")
	if err != nil {
		return err
	}
	*p = append(*p, bodyPart{ctx.Value.Name, token.String(), ctx.Scan.Len()})
	return nil
}

// jsonFlag is the value of --json: a request body if one follows, and else a choice of the output.
type jsonFlag struct {
	events bool
	body   bodyParts
}

// IsBool implements kong.BoolMapperValue.
func (*jsonFlag) IsBool() bool { return true }

// Decode implements kong.MapperValue. The next word is the body if it is JSON, or names a file. No URL is.
func (f *jsonFlag) Decode(ctx *kong.DecodeContext) error {
	next, _ := ctx.Scan.Peek().Value.(string)
	if strings.HasPrefix(next, "@") || strings.HasPrefix(next, "{") || strings.HasPrefix(next, "[") || json.Valid([]byte(next)) {
		return f.body.Decode(ctx)
	}
	f.events = true
	return nil
}

// inputs reads what flags name: files and standard input.
type inputs struct {
	ctx   context.Context
	stdin io.Reader
}

// file reads a file for a flag.
func (in inputs) file(flag, name string) ([]byte, error) {
	data, err := cli.ReadInput(in.ctx, name, in.stdin, service.MaxRequestBody)
	if err != nil {
		return nil, cli.InputError(flag, err)
	}
	return data, nil
}

// text returns what a part adds to the body.
func (in inputs) text(part bodyPart) ([]byte, error) {
	name, isFile := strings.CutPrefix(part.value, "@")
	switch {
	case part.flag == "data-urlencode":
		return in.encoded(part)
	case isFile && part.flag != "data-raw":
		return in.file("--"+part.flag, name)
	}
	return []byte(part.value), nil
}

// encoded returns the text of --data-urlencode: DATA, =DATA, NAME=DATA, @FILE or NAME@FILE.
func (in inputs) encoded(part bodyPart) ([]byte, error) {
	name, value, ok := strings.Cut(part.value, "=")
	if !ok {
		var file string
		if name, file, ok = strings.Cut(part.value, "@"); ok {
			data, err := in.file("--data-urlencode", file)
			if err != nil {
				return nil, err
			}
			value = string(data)
		}
	}
	if !ok {
		name, value = "", part.value
	}
	text := url.QueryEscape(value)
	if name != "" {
		text = name + "=" + text
	}
	return []byte(text), nil
}

// joined returns the texts of all parts.
func (in inputs) joined(parts bodyParts, separator string) ([]byte, error) {
	slices.SortStableFunc(parts, func(a, b bodyPart) int { return cmp.Compare(b.left, a.left) })
	var all [][]byte
	for _, part := range parts {
		text, err := in.text(part)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return bytes.Join(all, []byte(separator)), nil
}

// form returns a body of multipart/form-data, and its Content-Type.
func (in inputs) form(parts bodyParts) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, part := range parts {
		if err := in.field(w, part.value); err != nil {
			return nil, "", err
		}
	}
	_ = w.Close() // writes to memory do not fail
	return b.Bytes(), w.FormDataContentType(), nil
}

// uploadTypes are the types that curl gives to files in a form. Others are application/octet-stream.
var uploadTypes = map[string]string{".gif": "image/gif", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".svg": "image/svg+xml",
	".txt": "text/plain", ".htm": "text/html", ".html": "text/html", ".pdf": "application/pdf", ".xml": "application/xml"}

// field writes a field of a form: NAME=VALUE, NAME=@FILE or NAME=<FILE, each with ;type= and ;filename=.
func (in inputs) field(w *multipart.Writer, text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return cli.UsageError("--form", fmt.Sprintf("is %.60q: give NAME=VALUE", text))
	}
	attributes := make(map[string]string)
	for {
		i := strings.LastIndexByte(value, ';')
		key, attribute, _ := strings.Cut(value[i+1:], "=")
		if key = strings.TrimSpace(key); i < 0 || key != "type" && key != "filename" {
			break
		}
		attributes[key], value = strings.Trim(attribute, `"`), value[:i]
	}
	data, contentType, filename := []byte(value), attributes["type"], attributes["filename"]
	path := strings.Trim(value[min(1, len(value)):], `"`)
	if strings.HasPrefix(value, "@") {
		contentType = cmp.Or(contentType, uploadTypes[strings.ToLower(filepath.Ext(path))], "application/octet-stream")
		filename = cmp.Or(filename, filepath.Base(path))
	}
	if strings.HasPrefix(value, "@") || strings.HasPrefix(value, "<") {
		var err error
		if data, err = in.file("--form", path); err != nil {
			return err
		}
	}
	header := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(name, filename)}}
	if filename == "" {
		header.Set("Content-Disposition", strings.TrimSuffix(header.Get("Content-Disposition"), `; filename=""`))
	}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	field, err := w.CreatePart(header)
	if err == nil {
		_, err = field.Write(data)
	}
	return err
}

// data returns the parts of --data and the flags like it.
func (c *Command) data() bodyParts {
	return slices.Concat(c.Data, c.DataRaw, c.DataBinary, c.DataURLEncode)
}

// checkBody rejects flags that give two bodies, and those that contradict a body.
func (c *Command) checkBody() error {
	var given []string
	for _, source := range []struct {
		flag string
		is   bool
	}{{"--data", len(c.data()) > 0}, {"--json", len(c.JSON.body) > 0}, {"--form", len(c.Form) > 0}, {"--upload-file", c.UploadFile != ""}} {
		if source.is {
			given = append(given, source.flag)
		}
	}
	switch {
	case len(given) > 1:
		return cli.UsageError(given[0], "is a request body, and so is "+given[1]+": leave out one of them")
	case c.Get && (len(given) == 0 || given[0] != "--data"):
		return cli.UsageError("--get", "adds the data of -d to the URL: give it")
	case c.Head && len(given) > 0 && !c.Get:
		return cli.UsageError("-I", "sends HEAD, which has no body: leave out "+given[0])
	}
	return nil
}

// body sets the body, the method and the Content-Type of a request, or with --get the query of its URL.
func (c *Command) body(ctx context.Context, req *pb.FetchRequest, stdin io.Reader) error {
	in := inputs{ctx, stdin}
	flag, method, contentType := "--data", http.MethodPost, "application/x-www-form-urlencoded"
	var err error
	switch parts := c.data(); {
	case len(parts) > 0:
		req.Body, err = in.joined(parts, "&")
	case len(c.JSON.body) > 0:
		flag, contentType = "--json", "application/json"
		req.Body, err = in.joined(c.JSON.body, "")
		c.defaultHeader(req, "Accept", contentType)
	case len(c.Form) > 0:
		flag = "--form"
		req.Body, contentType, err = in.form(c.Form)
	case c.UploadFile != "":
		flag, method, contentType = "--upload-file", http.MethodPut, ""
		req.Body, err = in.file(flag, c.UploadFile)
		if strings.HasSuffix(req.GetUrl(), "/") && c.UploadFile != "-" {
			req.Url += url.PathEscape(filepath.Base(c.UploadFile))
		}
	default:
		return nil
	}
	switch {
	case err != nil:
		return err
	case c.Get:
		req.Url, req.Body = withQuery(req.GetUrl(), string(req.GetBody())), nil
		return cli.CheckUTF8(map[string]string{"--data": req.GetUrl()})
	case len(req.GetBody()) > service.MaxRequestBody:
		return cli.UsageError(flag, fmt.Sprintf("has more than %d bytes: give less", service.MaxRequestBody))
	}
	req.Method = cmp.Or(req.GetMethod(), method)
	c.defaultHeader(req, "Content-Type", contentType)
	return nil
}

// defaultHeader adds a header, unless it is empty or the request has one with that name.
func (c *Command) defaultHeader(req *pb.FetchRequest, name, value string) {
	if value != "" && !slices.ContainsFunc(req.GetHeaders(), func(h *pb.Header) bool { return strings.EqualFold(h.GetName(), name) }) {
		req.Headers = append(req.Headers, &pb.Header{Name: name, Value: value})
	}
}

// withQuery adds to the query of a URL.
func withQuery(target, more string) string {
	target, fragment, hasFragment := strings.Cut(target, "#")
	switch {
	case !strings.Contains(target, "?"):
		target += "?"
	case !strings.HasSuffix(target, "?") && !strings.HasSuffix(target, "&"):
		target += "&"
	}
	target += more
	if hasFragment {
		target += "#" + fragment
	}
	return target
}
