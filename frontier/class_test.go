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
		{"misspelt", "HTTP-Sever-Error", "did you mean http_server_error?"},
		{"the contract's name", "ERROR_CLASS_FORBIDDEN", "did you mean forbidden?"},
		{"nothing like any", "nothing_like_it", "the classes are attempt_timeout, auth_required,"},
		{"empty", "", "the classes are "},
		{"the contract's zero", "unspecified", "the classes are "},
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
