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

func database(t testing.TB) string {
	t.Helper()
	t.Skip("none")                 // want `Skip: use a function of fetchd/test/need`
	t.Skipf("none")                // want `Skipf: use a function of fetchd/test/need`
	defer func() { t.SkipNow() }() // want `SkipNow: use a function of fetchd/test/need`
	return ""
}

func TestReported(t *testing.T) {
	for name, dsn := range map[string]func() string{
		"closure": func() string { return database(t) }, // want `the closure uses t, and a subtest may call it`
	} {
		t.Run(name, func(*testing.T) { dsn() })
	}
	stop := func() { t.FailNow() }
	r := newRig(t)
	t.Run("itself", func(*testing.T) {
		t.Fatal() // want `the subtest uses t of the test around it`
	})
	t.Run("an argument", func(*testing.T) {
		database(t) // want `the subtest uses t of the test around it`
	})
	t.Run("a closure", func(*testing.T) {
		stop() // want `the subtest uses the closure stop, which uses t`
	})
	t.Run("a struct", func(*testing.T) {
		r.must() // want `the subtest uses r, a \*rig, which holds the test around it`
	})
	t.Run("deeper", func(t *testing.T) {
		t.Run("inside", func(*testing.T) {
			t.Error() // want `the subtest uses t of the test around it`
		})
	})
	t.Run("a method", r.test) // want `the subtest is a method of r, which holds the test around it`
}

func TestNotReported(t *testing.T) {
	for name, dsn := range map[string]func(testing.TB) string{
		"closure": func(t testing.TB) string { return database(t) },
	} {
		t.Run(name, func(t *testing.T) { dsn(t) })
	}
	r := newRig(t)
	stop := func(t *testing.T) { t.FailNow() }
	alone := func() { t.FailNow() }
	t.Cleanup(func() { t.Error() })
	t.Run("its own", func(t *testing.T) {
		t.Fatal()
		stop(t)
		r := r.in(t)
		r.must()
		handlers := []func(){func() { t.Error() }}
		handlers[0]()
	})
	t.Run("harmless", func(u *testing.T) {
		u.Log(t.Name(), t.Context())
		t.Log()
	})
	alone()
}

func FuzzReported(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		f.Fatal() // want `the subtest uses f of the test around it`
		t.Error()
	})
}
