package fetch

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"fetchd/classify"
	"fetchd/fetch/conns"
	"fetchd/fetch/fault"
	"fetchd/fetch/signing"
)

var errNotSigned = fault.New(classify.AuthRequired, classify.PhasePolicy, "signing_failed")

// sign adds the fields of a signer to a request whose connection is known. It is the last step before
// the request is written, so nothing that was signed changes later (A7). A nil signer adds nothing.
func (a *attempt) sign(x *conns.Exchange, req *http.Request, signer Signer) error {
	if signer == nil {
		return nil
	}
	names := signer.Headers()
	req.Header = conns.FinalHeader(req, names)
	m := signing.Message{ID: a.run.req.ID, Time: time.Now(), Method: req.Method, URL: req.URL, Authority: req.Host,
		Target: req.URL.RequestURI(), Protocol: x.Protocol(), Header: conns.SentHeader(req), Body: a.hop.body}
	fields, err := signer.Sign(x.Context(), &m)
	for _, f := range fields {
		if err == nil && !slices.Contains(names, f.Name) {
			err = fmt.Errorf("the signer adds %.60q, which is not among its headers", f.Name)
		}
	}
	if err != nil {
		a.noCredential = true
		return fmt.Errorf("%w: %w", errNotSigned, err) // the signer's error is for the log only
	}
	for _, f := range fields {
		req.Header[f.Name] = append(req.Header[f.Name], f.Value)
	}
	a.added = append(a.added, fields...)
	return nil
}
