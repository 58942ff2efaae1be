package main

// ruleSentences says in a sentence what each rule of docs/spec.md that a
// decision can name, or a scenario shows, is about. It is constant.
var ruleSentences = map[string]string{
	"N1":  "The name does not exist or could not be looked up in time: transient, retried.",
	"N2":  "The connection was refused: transient, retried.",
	"N3":  "No connection, or no finished handshake, in time; or no route: transient, retried.",
	"N4":  "Reset, or closed before the response head was complete: transient, retried.",
	"N5":  "The TLS handshake failed, certificate and time-out aside: retried in STANDARD, final in DOWNLOAD.",
	"N6":  "The certificate is not acceptable: permanent, never retried.",
	"N7":  "No response head in time, or the request could not be written in time: transient, retried.",
	"N8":  "The body was cut: transient, retried as long as none of it was delivered, or it can be continued.",
	"N9":  "The body was silent too long: transient, retried as long as none of it was delivered, or it can be continued.",
	"N10": "The peer does not speak HTTP or breaks its framing: permanent, never retried.",
	"N11": "The time for one attempt passed while all went well: transient, retried.",

	"H0":  "A 2xx whose body is whole and as the request wants it is a success.",
	"H1":  "500 to 599: transient, retried.",
	"H2":  "429: the rate is limited; retried, but no sooner than Retry-After and only if that is not too long.",
	"H3":  "401: needs credentials; retried only through an auth provider.",
	"H4":  "403: needs (other) credentials, never retried.",
	"H5":  "408: transient; retried in DOWNLOAD, not in STANDARD. A later fetch may succeed.",
	"H6":  "Any other 4xx: permanent, never retried.",
	"H7":  "A 304 to a conditional request is a success without a body.",
	"H8":  "A 304 that nobody asked for: permanent, never retried.",
	"H9":  "A 3xx that is not to be followed is the result, not an error.",
	"H10": "A status in additional_status_codes: retried.",

	"R1": "More redirects than max_redirects: permanent, never retried.",
	"R2": "The chain returns to a request it already made: permanent, never retried.",
	"R3": "The Location is unusable, or against the redirect policy: permanent, never retried.",
	"R4": "A hop that fails gives its own class, with the hop's URL.",

	"C1": "The media type is not among those accepted: permanent, never retried.",
	"C2": "The body is empty where one is required: permanent, never retried.",
	"C3": "The content coding or the charset is broken: permanent, never retried.",
	"C4": "The body is larger than a limit: permanent, never retried.",
	"C5": "The body is not what the caller said: permanent, never retried.",

	"P1": "The egress policy forbids the target, at any hop: permanent, never retried.",
	"P2": "The request is malformed: permanent, never retried.",
	"P3": "The time for the whole fetch is spent; a later fetch may succeed.",
	"P4": "The caller gave the fetch up.",
	"P5": "The server is shutting down; a later fetch may succeed.",
	"P6": "The server failed: never retried.",
	"P7": "The server has no memory left for this fetch; a later fetch may succeed.",

	"W1": "The wait is the profile's backoff, unless a Retry-After says otherwise.",
	"W2": "Retry-After on a 429 or a 503 is waited for exactly, in seconds or as a date.",
	"W3": "A Retry-After longer than max_retry_after is neither waited for nor shortened: the fetch ends, and tells it.",
	"W4": "A wait that would reach the deadline is not begun.",
	"W5": "A wait ends at once on cancel and on shutdown.",

	"I1": "Idempotent methods are retried as the class says.",
	"I2": "POST and PATCH are sent once, unless a key is given and a retry allowed; the key is the same on every attempt.",
	"I3": "Where a redirect turned the request into one that may be repeated, only the failed hop is tried again.",
	"I4": "No more attempts than max_attempts.",
	"I7": "Where several stops hold, the first in the order of the specification is named.",
	"I6": "No more exchanges than one fetch may make.",

	"D1": "max_redirects redirects are followed, and not one request more is sent.",
	"D2": "301 and 302 turn POST into GET, 303 all but HEAD; 307 and 308 change nothing.",
	"D3": "A loop is the same method, URL and sent headers as an earlier hop; it is found before the request is sent again.",
	"D4": "Across origins only headers go along that name no one and open nothing.",
	"D7": "Cookies are kept within one fetch, and only where the caller wants them.",

	"B1": "The body is held back until the attempt has ended well, so that a cut is an ordinary retry.",
	"B2": "A body that is cut after bytes have gone out is continued at the first byte not delivered, if it is still the same.",
	"B3": "A body of which bytes were delivered and that cannot be continued ends the fetch; a later fetch may succeed.",

	"B4": "A body is streamed, in the outcome, hashed alone or not read, as the caller says.",
	"B5": "The outcome tells size and digest of the body, and whether it was cut at the limit.",
	"B6": "Content codings are decoded, unless the caller wants the bytes as sent.",

	"A2": "On a 401 from the provider's origin the credential is refreshed and the request tried again at once, only once.",
}
