package origin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strings"
)

// page is an answer of the origin about itself.
type page func(r *http.Request) (reply, error)

func (o *Origin) page(path string) (page, bool) {
	pages := map[string]page{
		"/":             o.indexPage,
		"/_log":         o.logPage,
		"/_connections": o.connectionsPage,
		"/_ca.pem":      o.caPage,
		"/_client.pem":  o.clientPage,
	}
	p, ok := pages[path]
	return p, ok
}

func (x *exchange) servePage(p page) error {
	r, err := p(x.req)
	if err != nil {
		return x.refuse(http.StatusInternalServerError, err)
	}
	return x.reply(r)
}

func (o *Origin) indexPage(*http.Request) (reply, error) {
	return textReply(textPlain, o.Index()), nil
}

func (o *Origin) logPage(r *http.Request) (reply, error) {
	if r.Method == http.MethodDelete {
		o.Reset()
		return reply{status: http.StatusNoContent}, nil
	}
	requests := o.AllRequests()
	if query := r.URL.Query(); query.Has("key") {
		requests = o.Requests(query.Get("key"))
	}
	if requests == nil {
		requests = []Request{} // a list in JSON too
	}
	return jsonReply(requests)
}

func (o *Origin) connectionsPage(*http.Request) (reply, error) {
	return jsonReply(o.tracker.allCounts())
}

func (o *Origin) caPage(*http.Request) (reply, error) {
	return textReply("application/x-pem-file", string(o.CAPEM())), nil
}

func (o *Origin) clientPage(*http.Request) (reply, error) {
	a, err := o.authority()
	if err != nil {
		return reply{}, err
	}
	b, err := a.clientPEM()
	return textReply("application/x-pem-file", string(b)), err
}

func textReply(kind, text string) reply {
	return reply{status: http.StatusOK, fields: []Field{{"Content-Type", kind}}, body: []byte(text)}
}

func jsonReply(v any) (reply, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return textReply("application/json", string(b)+"\n"), err
}

// echo returns the request as logged, in JSON.
func (x *exchange) echo() ([]byte, error) {
	request := x.entry.snapshot()
	seen := struct {
		Method   string  `json:"method"`
		URL      string  `json:"url"`
		Host     string  `json:"host"`
		Protocol string  `json:"protocol"`
		Fields   []Field `json:"headers"`
		Bytes    int64   `json:"body_bytes"`
		SHA256   string  `json:"body_sha256"`
	}{
		request.Method, x.req.RequestURI, request.Host, request.Protocol,
		request.Fields, request.BodyBytes, request.BodySHA256,
	}
	b, err := json.MarshalIndent(seen, "", "  ")
	return append(b, '\n'), err
}

// router knows how /cross names other listeners.
func (o *Origin) router() router {
	return router{absolute: func(target, path string) (string, error) {
		name, host, otherHost := strings.Cut(target, "@")
		if _, ok := kindOf(name); !ok && name != refusedName {
			return "", fmt.Errorf("%w: no listener %q", errGrammar, name)
		}
		if !otherHost {
			return o.URL(name, path), nil
		}
		u, err := url.Parse(o.URL(name, ""))
		if err != nil {
			return "", errors.Join(errGrammar, err)
		}
		if port := u.Port(); port != "" {
			host += ":" + port
		}
		return u.Scheme + "://" + host + path, nil
	}}
}

// sortedFields lists a header whose order is lost.
func sortedFields(h http.Header) []Field {
	fields := make([]Field, 0, len(h))
	for name, values := range h {
		for _, value := range values {
			fields = append(fields, Field{name, value})
		}
	}
	sort.SliceStable(fields, func(i, j int) bool { return fields[i].Name < fields[j].Name })
	return fields
}
