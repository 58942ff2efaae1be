package conns

import (
	"strings"
	"testing"
)

// FuzzBindsConnection checks that a scheme is found after any prefix, and that none is
// found where no name of a scheme is.
func FuzzBindsConnection(f *testing.F) {
	f.Add(`Basic realm="a, b`)
	f.Add("Digest qop=\"auth,auth-int\"")
	f.Add(", \t ,nEGOTIATE")
	f.Fuzz(func(t *testing.T, line string) {
		if !BindsConnection(line + ",\t NtLm TlRM") {
			t.Errorf("NTLM is not found behind %q", line)
		}
		named := false
		for _, scheme := range bindingSchemes {
			named = named || strings.Contains(strings.ToLower(line), scheme)
		}
		if BindsConnection("Basic x", line) && !named {
			t.Errorf("a scheme is found in %q", line)
		}
	})
}
