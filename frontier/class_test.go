package frontier

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckClassOfEach(t *testing.T) {
	t.Parallel()
	for _, class := range Classes() {
		if err := CheckClass(class); err != nil {
			t.Errorf("CheckClass(%q) = %v, want nil", class, err)
		}
	}
}

func TestCheckClass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, class, told string }{
		{"misspelt", "HTTP-Sever-Error", "is it http_server_error?"},
		{"the contract's name", "ERROR_CLASS_FORBIDDEN", "is it forbidden?"},
		{"nothing like any", "nothing_like_it", "it is one of attempt_timeout, auth_required,"},
		{"empty", "", "it is one of "},
		{"the contract's zero", "unspecified", "it is one of "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := CheckClass(tt.class); !strings.Contains(fmt.Sprint(err), tt.told) {
				t.Errorf("CheckClass(%q) = %v, want %q in it", tt.class, err, tt.told)
			}
			policy := DefaultPolicy()
			if err := policy.Set(tt.class + "=skip"); !strings.Contains(fmt.Sprint(err), tt.told) {
				t.Errorf("Set(%q) = %v, want %q in it", tt.class+"=skip", err, tt.told)
			}
		})
	}
}
