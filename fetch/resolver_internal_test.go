package fetch

import (
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// FuzzAnswer checks that no answer of a name server can break a lookup of a name with a hyphen at the end of a label.
// What is restored has the name that Go knows, or is the answer.
func FuzzAnswer(f *testing.F) {
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(disguise("dash-.test.")), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	asked, err := m.Pack()
	must(f, err)
	q, err := newQuery(asked)
	must(f, err)
	m.Questions[0].Name = dnsmessage.MustNewName("dash-.test.")
	for _, code := range []dnsmessage.RCode{dnsmessage.RCodeSuccess, dnsmessage.RCodeFormatError} {
		m.RCode, m.Response = code, true
		for _, answers := range [][]dnsmessage.Resource{nil, {{Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}} {
			m.Answers = answers
			answer, err := m.Pack()
			must(f, err)
			f.Add(answer)
			f.Add(answer[:len(answer)-1])
		}
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		_ = q.isRefused(answer)
		restored := q.restore(answer)
		var m dnsmessage.Message
		if string(restored) == string(answer) || m.Unpack(restored) != nil {
			return
		}
		if name := m.Questions[0].Name.String(); !strings.EqualFold(name, disguise("dash-.test.")) {
			t.Errorf("an answer about %s", name)
		}
	})
}

// TestDisguise checks which names Go is asked for.
func TestDisguise(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.test.": "a.test.", "a-b.test.": "a-b.test.", "a.test": "a.test", "-a.test": "-a.test", ".": ".", "": "",
		"dash-.test.": "dashH.test.invalid.", "-a.test.": "Ha.test.invalid.", "-.--.---.": "H.HH.H-H.invalid.", "a-.invalid.": "aH.invalid.invalid.",
	} {
		if got := disguise(name); got != want {
			t.Errorf("disguise(%q) = %q, want %q", name, got, want)
		}
	}
}
