package normal

import (
	"errors"
	"fmt"

	whatwgerrors "github.com/nlnwa/whatwg-url/errors"
)

// Errors about a URL. Each error of this package wraps one of them.
var (
	// ErrTooLong means that a URL or its normal form is longer than MaxURLBytes, its user
	// information is 256 bytes or more, or it has more than 512 slashes before its query.
	ErrTooLong = errors.New("URL is too long")
	// ErrScheme means that the scheme is missing, or is not http or https.
	ErrScheme = errors.New("URL has the wrong scheme")
	// ErrHost means that the host is missing or not valid, such as a name of more than 253 bytes,
	// or with a label of more than 63.
	ErrHost = errors.New("URL has a bad host")
	// ErrPort means that the port is not a number up to 65535.
	ErrPort = errors.New("URL has a bad port")
	// ErrAmbiguous means that two parsers would understand the URL differently.
	ErrAmbiguous = errors.New("URL is ambiguous")
)

// syntaxError translates an error of the parser, whose text contains the URL with its user
// information.
func syntaxError(err error) error {
	switch whatwgerrors.Type(err) {
	case whatwgerrors.MissingSchemeNonRelativeURL:
		return fmt.Errorf("%w: it has none", ErrScheme)
	case whatwgerrors.PortOutOfRange:
		return fmt.Errorf("%w: it is greater than 65535", ErrPort)
	case whatwgerrors.PortInvalid:
		return fmt.Errorf("%w: it is not a number", ErrPort)
	case whatwgerrors.HostMissing, whatwgerrors.InvalidCredentials:
		return fmt.Errorf("%w: it has none", ErrHost)
	case whatwgerrors.DomainToASCII:
		return fmt.Errorf("%w: it is not a domain name by IDNA", ErrHost)
	case whatwgerrors.DomainInvalidCodePoint, whatwgerrors.HostInvalidCodePoint:
		return fmt.Errorf("%w: it has a character that is not allowed in a host name", ErrHost)
	case whatwgerrors.IPv4TooManyParts, whatwgerrors.IPv4NonNumericPart, whatwgerrors.IPv4OutOfRangePart, whatwgerrors.IPv4EmptyPart:
		return fmt.Errorf("%w: it ends in a number but is not an IPv4 address", ErrHost)
	default: // Without a base URL, the other errors are about IPv6.
		return fmt.Errorf("%w: it is not an IPv6 address", ErrHost)
	}
}
