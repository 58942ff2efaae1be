package httpsig

import (
	"errors"
	"strings"

	"github.com/dunglas/httpsfv"

	"fetchd/fetch/signing"
)

// Base returns the signature base of a request for the value of a member of Signature-Input.
func Base(r *signing.Message, input string) (string, error) {
	list, err := httpsfv.UnmarshalList([]string{input})
	if err != nil {
		return "", err
	}
	inner, ok := list[0].(httpsfv.InnerList)
	if !ok {
		return "", errors.New("not a list of components")
	}
	var components []Component
	for _, item := range inner.Items {
		c, err := componentOf(item)
		if err != nil {
			return "", err
		}
		components = append(components, c)
	}
	params, err := httpsfv.Marshal(httpsfv.InnerList{Params: inner.Params})
	if err != nil {
		return "", err
	}
	text, _, err := base(components, strings.TrimPrefix(params, "()"), (&message{Message: r}).value)
	return text, err
}
