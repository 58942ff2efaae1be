package a

import "testing"

type rig struct {
	*testing.T
	n int
}

func newRig(t *testing.T) *rig { return &rig{T: t} }

func (r *rig) in(t *testing.T) *rig { return &rig{t, r.n} }

func (r *rig) must() {
	if r.n > 0 {
		r.Fatal()
	}
}

func (r *rig) test(t *testing.T) { r.must() }

// suite holds a test, because its rig does.
type suite struct{ *rig }

func database(t testing.TB) string {
	t.Helper()
	t.Skip("none")                 // want `Skip: use a function of fetchd/test/need`
	t.Skipf("none")                // want `Skipf: use a function of fetchd/test/need`
	defer func() { t.SkipNow() }() // want `SkipNow: use a function of fetchd/test/need`
	return ""
}

func TestReported(t *testing.T) {
	r := newRig(t)
	s := suite{r}
	t.Run("itself", func(*testing.T) {
		t.Fatal() // want `the subtest uses t of the test around it`
	})
	t.Run("an argument", func(*testing.T) {
		database(t) // want `the subtest uses t of the test around it`
	})
	t.Run("a struct", func(*testing.T) {
		r.must() // want `the subtest uses r, a \*rig, which holds the test around it`
	})
	t.Run("a struct that embeds one", func(*testing.T) {
		s.must() // want `the subtest uses s, a suite, which holds the test around it`
	})
	t.Run("deeper", func(t *testing.T) {
		t.Run("inside", func(*testing.T) {
			t.Error() // want `the subtest uses t of the test around it`
		})
	})
	t.Run("a method", r.test) // want `the subtest is a method of r, which holds the test around it`
}

func TestNotReported(t *testing.T) {
	r := newRig(t)
	t.Cleanup(func() { t.Error() })
	t.Run("its own", func(t *testing.T) {
		t.Fatal()
		r := r.in(t)
		r.must()
	})
	t.Run("harmless", func(u *testing.T) {
		u.Log(t.Name(), t.Context())
		t.Log()
	})
}

func FuzzReported(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		f.Fatal() // want `the subtest uses f of the test around it`
		t.Error()
	})
}
