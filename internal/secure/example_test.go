package secure_test

import (
	"fmt"
	"strings"

	"fetchd/internal/secure"
)

func ExampleNewToken() {
	token, line, err := secure.NewToken("crawler")
	fmt.Println(strings.HasPrefix(token, secure.Prefix), len(token), err)
	fmt.Println(line[:len(`- {name: "crawler", sha256: "`)])
	// Output:
	// true 50 <nil>
	// - {name: "crawler", sha256: "
}
