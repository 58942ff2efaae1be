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
	for name, dsn := range map[string]func() string{
		"closure": func() string { return database(t) }, // want `the closure uses t, and a subtest may call it`
	} {
		t.Run(name, func(*testing.T) { dsn() })
	}
	stop := func() { t.FailNow() }
	r := newRig(t)
	s := suite{r}
	for name, change := range map[string]func(){
		"closure": func() { r.must() }, // want `the closure uses r, and a subtest may call it`
	} {
		t.Run(name, func(*testing.T) { change() })
	}
	must := func() { s.must() }
	run := func(*testing.T) { t.Fatal() }
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
	t.Run("a struct that embeds one", func(*testing.T) {
		s.must() // want `the subtest uses s, a suite, which holds the test around it`
	})
	var end = func() { t.FailNow() }
	t.Run("a declared closure", func(*testing.T) {
		end() // want `the subtest uses the closure end, which uses t`
	})
	t.Run("a closure that uses a struct", func(*testing.T) {
		must() // want `the subtest uses the closure must, which uses s`
	})
	t.Run("a closure as the subtest", run) // want `the subtest uses the closure run, which uses t`
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
	change := map[string]func(*rig){"closure": func(r *rig) { r.must() }}
	t.Cleanup(func() { t.Error() })
	t.Run("its own", func(t *testing.T) {
		t.Fatal()
		stop(t)
		r := r.in(t)
		r.must()
		change["closure"](r)
		handlers := []func(){func() { t.Error() }}
		handlers[0]()
	})
	t.Run("harmless", func(u *testing.T) {
		u.Log(t.Name(), t.Context())
		t.Log()
	})
	alone()
}

// TestWithoutSubtests has closures that no subtest calls.
func TestWithoutSubtests(t *testing.T) {
	r := newRig(t)
	for _, do := range []func(){func() { t.Error() }, func() { r.must() }} {
		do()
	}
}

func FuzzReported(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		f.Fatal() // want `the subtest uses f of the test around it`
		t.Error()
	})
}
