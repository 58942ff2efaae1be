package normal

import (
	"errors"
	"fmt"

	whatwgerrors "github.com/nlnwa/whatwg-url/errors"
)

// What can be wrong with a URL. Each error of this package wraps one of them.
var (
	// ErrTooLong is a URL, or a normal form, of more than MaxURLBytes, or
	// user information of 1 KiB or more.
	ErrTooLong = errors.New("URL is too long")
	// ErrScheme is a scheme that is missing, or not http or https.
	ErrScheme = errors.New("URL has the wrong scheme")
	// ErrHost is a host that is missing or cannot be one, such as a name of more than
	// 253 bytes, or with a label of more than 63.
	ErrHost = errors.New("URL has a bad host")
	// ErrPort is a port that is no number up to 65535.
	ErrPort = errors.New("URL has a bad port")
	// ErrAmbiguous is a URL that two readers would take for different ones.
	ErrAmbiguous = errors.New("URL is ambiguous")
)

// syntaxError puts what the parser found into our words: its own text repeats
// the URL, user information and all.
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
		return fmt.Errorf("%w: it is no domain name by IDNA", ErrHost)
	case whatwgerrors.DomainInvalidCodePoint, whatwgerrors.HostInvalidCodePoint:
		return fmt.Errorf("%w: it has a character that no host name has", ErrHost)
	case whatwgerrors.IPv4TooManyParts, whatwgerrors.IPv4NonNumericPart, whatwgerrors.IPv4OutOfRangePart, whatwgerrors.IPv4EmptyPart:
		return fmt.Errorf("%w: it ends in a number and is no IPv4 address", ErrHost)
	default: // The others of a URL without a base are those of IPv6.
		return fmt.Errorf("%w: it is no IPv6 address", ErrHost)
	}
}
