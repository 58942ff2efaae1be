package server

import (
	"fmt"

	"fetchd/internal/badrequest"
)

// violations collects all faults of a request.
type violations struct{ badrequest.Violations }

// errorDomain is the domain of every google.rpc.ErrorInfo of this service.
const errorDomain = "fetchd.v1"

// enum reads an enum field. A value that is not in the table is unknown to this server.
func enum[E interface {
	~int32
	fmt.Stringer
}, T comparable](v *violations, field string, value E, known table[E, T]) T {
	if value < 0 || int(value) >= len(known) {
		v.Add(field, "is %s, which this server does not know", value)
		value = 0
	}
	return known[value]
}
