package har

import (
	"strconv"
	"time"
)

// The objects of an archive, with the names of the specification.

type file struct {
	Log archive `json:"log"`
}

type archive struct {
	Version string   `json:"version"`
	Creator creator  `json:"creator"`
	Pages   []page   `json:"pages"`
	Entries []entry  `json:"entries"`
	Comment string   `json:"comment,omitempty"`
	FetchID string   `json:"_fetchId,omitempty"`
	Outcome *outcome `json:"_outcome,omitempty"`
}

type creator struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type outcome struct {
	Kind          string `json:"kind"`
	DecisionRule  string `json:"decisionRule"`
	AttemptCount  int32  `json:"attemptCount"`
	ExchangeCount int32  `json:"exchangeCount"`
	FinalURL      string `json:"finalUrl"`
	Time          ms     `json:"time"`
}

type page struct {
	Started moment      `json:"startedDateTime"`
	ID      string      `json:"id"`
	Title   string      `json:"title"`
	Timings pageTimings `json:"pageTimings"`
	Comment string      `json:"comment,omitempty"`
}

type pageTimings struct {
	OnContentLoad ms `json:"onContentLoad"`
	OnLoad        ms `json:"onLoad"`
}

type entry struct {
	Page         string   `json:"pageref"`
	Started      moment   `json:"startedDateTime"`
	Time         ms       `json:"time"`
	Request      request  `json:"request"`
	Response     response `json:"response"`
	Cache        struct{} `json:"cache"`
	Timings      timings  `json:"timings"`
	Server       string   `json:"serverIPAddress,omitempty"`
	Connection   string   `json:"connection,omitempty"`
	Attempt      int      `json:"_attempt"`
	Hop          int      `json:"_hop"`
	Rule         string   `json:"_rule,omitempty"`
	Protocol     string   `json:"_protocol,omitempty"`
	TLSVersion   string   `json:"_tlsVersion,omitempty"`
	CipherSuite  string   `json:"_tlsCipherSuite,omitempty"`
	ALPN         string   `json:"_alpnProtocol,omitempty"`
	Certificate  *cert    `json:"_certificate,omitempty"`
	Reused       bool     `json:"_connectionReused"`
	Backpressure ms       `json:"_backpressure"`
	Error        *failure `json:"_error,omitempty"`
	Unfinished   bool     `json:"_unfinished,omitempty"`
}

type cert struct {
	Subject  string `json:"subject"`
	Issuer   string `json:"issuer"`
	NotAfter moment `json:"notAfter"`
	SHA256   string `json:"sha256"`
}

type failure struct {
	Class     string `json:"class"`
	ClassRule string `json:"classRule"`
	Type      string `json:"type"`
	Reason    string `json:"reason,omitempty"`
	Phase     string `json:"phase,omitempty"`
	Message   string `json:"message"`
	Detail    string `json:"detail,omitempty"`
	Retryable bool   `json:"retryable"`
}

type request struct {
	Method      string `json:"method"`
	URL         string `json:"url"`
	Version     string `json:"httpVersion"`
	Cookies     []pair `json:"cookies"`
	Headers     []pair `json:"headers"`
	Query       []pair `json:"queryString"`
	Post        *post  `json:"postData,omitempty"`
	HeadersSize int64  `json:"headersSize"`
	BodySize    int64  `json:"bodySize"`
	Comment     string `json:"comment,omitempty"`
}

type post struct {
	MIME string `json:"mimeType"`
	Text string `json:"text"`
}

type response struct {
	Status      int     `json:"status"`
	StatusText  string  `json:"statusText"`
	Version     string  `json:"httpVersion"`
	Cookies     []pair  `json:"cookies"`
	Headers     []pair  `json:"headers"`
	Content     content `json:"content"`
	RedirectURL string  `json:"redirectURL"`
	HeadersSize int64   `json:"headersSize"`
	BodySize    int64   `json:"bodySize"`
	Error       string  `json:"_error,omitempty"`
}

type content struct {
	Size        int64  `json:"size"`
	Compression int64  `json:"compression,omitempty"`
	MIME        string `json:"mimeType"`
	Text        string `json:"text,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	Comment     string `json:"comment,omitempty"`
}

type timings struct {
	Blocked ms `json:"blocked"`
	DNS     ms `json:"dns"`
	Connect ms `json:"connect"`
	Send    ms `json:"send"`
	Wait    ms `json:"wait"`
	Receive ms `json:"receive"`
	SSL     ms `json:"ssl"`
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ms is a time in whole microseconds, written in milliseconds. Sums are exact.
type ms int64

// none is the value of a phase that did not happen.
const none ms = -1000

func msOf(d time.Duration) ms { return ms(d.Microseconds()) }

// MarshalJSON implements json.Marshaler.
func (m ms) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1000, 'f', -1, 64), nil
}

// moment is a time in ISO 8601, in UTC and microseconds.
type moment time.Time

// MarshalJSON implements json.Marshaler.
func (m moment) MarshalJSON() ([]byte, error) {
	return time.Time(m).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000000Z07:00"`), nil
}
