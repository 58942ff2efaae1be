package server

import (
	"testing"

	"fetchd/fetch/auth"
	"fetchd/fetch/auth/httpsig"
)

// announced is a provider that reports when its keys are published.
type announced struct {
	auth.Provider
	publish func()
}

func (a announced) Published() (agent string, keys []*httpsig.Key) {
	a.publish()
	return "https://bot.example", nil
}

// TestPublishedBeforeUse checks that the keys of a provider are published before a call can use it.
func TestPublishedBeforeUse(t *testing.T) {
	t.Parallel()
	s := &Server{service: new(service)}
	published := 0
	s.setProviders(map[string]AuthProvider{"a": {Provider: announced{publish: func() {
		published++
		if s.service.providers.Load() != nil {
			t.Error("a call can use the provider")
		}
	}}}})
	if known := s.service.providers.Load(); published != 1 || known == nil || len(*known) != 1 {
		t.Errorf("published %d times; providers %v", published, known)
	}
}
