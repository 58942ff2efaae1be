package conns

import (
	"crypto/tls"
	"testing"
	"time"
)

// TestDatedSessions checks that a session ends with the certificate, and that one without a date is not used.
func TestDatedSessions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		ends  time.Time
		dated bool
		want  bool
	}{
		{"valid", time.Now().Add(time.Minute), true, true},
		{"ended", time.Now().Add(-time.Second), true, false},
		{"of another cache", time.Now().Add(time.Minute), false, false},
	} {
		session, err := tls.NewResumptionState([]byte("ticket"), new(tls.SessionState))
		if err != nil {
			t.Fatal(err)
		}
		d := &datedSessions{ClientSessionCache: tls.NewLRUClientSessionCache(1), ends: row.ends}
		if row.dated {
			d.Put("name", session)
		} else {
			d.ClientSessionCache.Put("name", session)
		}
		other := &datedSessions{ClientSessionCache: d.ClientSessionCache, digest: [32]byte{1}}
		if _, ok := other.Get("name"); ok {
			t.Errorf("%s: a session of other intermediates", row.name)
		}
		if got, ok := d.Get("name"); ok != row.want || ok != (got != nil) {
			t.Errorf("%s: %v, %t, want %t", row.name, got, ok, row.want)
		}
		d.Put("name", nil)
		if _, ok := d.Get("name"); ok {
			t.Errorf("%s: a session after it was removed", row.name)
		}
	}
}
