package jsontext

import "testing"

// TestCompact removes spaces, but none of a string.
func TestCompact(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"nothing", ``, ``},
		{"an object", `{"a": 1, "b": [ true,  {} ] } `, `{"a":1,"b":[true,{}]}`},
		{"spaces in strings", `{"a b": " , \" : ", "c": "\\", "d": " "}`, `{"a b":" , \" : ","c":"\\","d":" "}`},
		{"no string", `[1, 2]`, `[1,2]`},
		{"a string that does not end", `{"a": "b \`, `{"a":"b \`},
	} {
		if got := string(compact([]byte(row.text))); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}
