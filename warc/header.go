package warc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setters store the value of a defined field in a Header. Content-Length is not in a Header: its
// setter only reserves the name.
var setters = map[string]func(h *Header, value string) error{
	nameType:          func(h *Header, v string) error { h.Type = Type(v); return nil },
	nameID:            func(h *Header, v string) error { return setID(&h.ID, v) },
	nameDate:          func(h *Header, v string) error { return setDate(&h.Date, v) },
	nameTargetURI:     func(h *Header, v string) error { return setID(&h.TargetURI, v) },
	nameContentType:   func(h *Header, v string) error { h.ContentType = v; return nil },
	nameContentLength: func(*Header, string) error { return nil },
	nameConcurrentTo: func(h *Header, v string) error {
		h.ConcurrentTo = append(h.ConcurrentTo, "")
		return setID(&h.ConcurrentTo[len(h.ConcurrentTo)-1], v)
	},
	nameRefersTo:          func(h *Header, v string) error { return setID(&h.RefersTo, v) },
	nameRefersToTargetURI: func(h *Header, v string) error { return setID(&h.RefersToTargetURI, v) },
	nameRefersToDate:      func(h *Header, v string) error { return setDate(&h.RefersToDate, v) },
	nameProfile:           func(h *Header, v string) error { return setID(&h.Profile, v) },
	nameBlockDigest:       func(h *Header, v string) error { return setDigest(&h.BlockDigest, v) },
	namePayloadDigest:     func(h *Header, v string) error { return setDigest(&h.PayloadDigest, v) },
	nameTruncated:         func(h *Header, v string) error { h.Truncated = Truncated(v); return nil },
	nameIPAddress: func(h *Header, v string) (err error) {
		h.IPAddress, err = netip.ParseAddr(v)
		return err
	},
	nameProtocol:           func(h *Header, v string) error { h.Protocol = append(h.Protocol, v); return nil },
	nameCipherSuite:        func(h *Header, v string) error { h.CipherSuite = v; return nil },
	nameIdentifiedType:     func(h *Header, v string) error { h.IdentifiedPayloadType = v; return nil },
	nameWarcinfoID:         func(h *Header, v string) error { return setID(&h.WarcinfoID, v) },
	nameFilename:           func(h *Header, v string) error { h.Filename = v; return nil },
	nameSegmentNumber:      func(h *Header, v string) error { return setNumber(&h.SegmentNumber, v) },
	nameSegmentOriginID:    func(h *Header, v string) error { return setID(&h.SegmentOriginID, v) },
	nameSegmentTotalLength: func(h *Header, v string) error { return setNumber(&h.SegmentTotalLength, v) },
}

// canonicalNames has the names of setters by their lower-case form.
var canonicalNames = func() map[string]string {
	names := map[string]string{}
	for name := range setters {
		names[strings.ToLower(name)] = name
	}
	return names
}()

// canonical returns the usual form of the name of a defined field. It reports false for others.
func canonical(name string) (string, bool) {
	if _, ok := setters[name]; ok {
		return name, true
	}
	name, ok := canonicalNames[strings.ToLower(name)]
	return name, ok
}

func mayRepeat(name string) bool { return name == nameConcurrentTo || name == nameProtocol }

func setID(to *string, v string) error {
	*to = unbracket(v)
	return nil // checkTypes checks it
}

func setDate(to *time.Time, v string) (err error) {
	*to, err = parseDate(v)
	return err
}

func setDigest(to *Digest, v string) error {
	*to = Digest(v)
	return nil
}

func setNumber(to *int64, v string) (err error) {
	*to, err = parseLength(v)
	return err
}

// parseLength parses digits without a sign, as the standard wants them.
func parseLength(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("the value is not a number")
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("the number is too large")
	}
	return n, nil
}

// check returns the values that the standard does not allow.
func (h *Header) check() []error {
	var faults []error
	add := func(name string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	uri := func(name, v string) {
		if v != "" {
			add(name, CheckURI(v))
		}
	}
	uri(nameID, h.ID)
	uri(nameTargetURI, h.TargetURI)
	for _, id := range h.ConcurrentTo {
		add(nameConcurrentTo, CheckURI(id))
	}
	uri(nameRefersTo, h.RefersTo)
	uri(nameRefersToTargetURI, h.RefersToTargetURI)
	uri(nameProfile, h.Profile)
	uri(nameWarcinfoID, h.WarcinfoID)
	uri(nameSegmentOriginID, h.SegmentOriginID)
	if h.BlockDigest != "" {
		add(nameBlockDigest, h.BlockDigest.check())
	}
	if h.PayloadDigest != "" {
		add(namePayloadDigest, h.PayloadDigest.check())
	}
	if h.Truncated != "" && !isToken(string(h.Truncated)) {
		add(nameTruncated, errors.New("the value is not a token"))
	}
	if h.IPAddress.Zone() != "" {
		add(nameIPAddress, errors.New("the address has a zone"))
	}
	if h.SegmentNumber < 0 || h.SegmentTotalLength < 0 {
		add(nameSegmentNumber, errors.New("the number or the total length is negative"))
	}
	return append(faults, h.checkTypes()...)
}

// checkTypes returns the fields that are missing, and those that a record of its type cannot have.
func (h *Header) checkTypes() []error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if h.ID == "" {
		add("%s is missing", nameID)
	}
	if h.Date.IsZero() {
		add("%s is missing", nameDate)
	}
	if !isToken(string(h.Type)) {
		add("%s: %.40q is not a type", nameType, string(h.Type))
	}
	if !slices.Contains(types, h.Type) {
		return faults // an extension defines its fields
	}
	for _, rule := range typeRules {
		switch present := rule.present(h); {
		case present && !slices.Contains(rule.allowed, h.Type):
			add("%s is not allowed in a %s record", rule.name, h.Type)
		case !present && slices.Contains(rule.required, h.Type):
			add("%s is missing in a %s record", rule.name, h.Type)
		}
	}
	if h.Profile == IdenticalPayloadDigest && h.PayloadDigest == "" {
		add("%s is missing: the profile of the record requires it", namePayloadDigest)
	}
	return faults
}

var (
	types       = []Type{Warcinfo, Response, Resource, Request, Metadata, Revisit, Conversion, Continuation}
	ofCapture   = []Type{Response, Resource, Request, Metadata, Revisit}
	withPayload = []Type{Response, Resource, Request, Revisit, Conversion, Continuation}
)

// typeRules says which types of record may have a field, and which must have it.
var typeRules = []struct {
	name              string
	present           func(h *Header) bool
	allowed, required []Type
}{
	{nameTargetURI, func(h *Header) bool { return h.TargetURI != "" }, types[1:], withPayload},
	{nameConcurrentTo, func(h *Header) bool { return h.ConcurrentTo != nil }, ofCapture, nil},
	{nameIPAddress, func(h *Header) bool { return h.IPAddress.IsValid() }, ofCapture, nil},
	{nameProtocol, func(h *Header) bool { return h.Protocol != nil }, ofCapture, nil},
	{nameCipherSuite, func(h *Header) bool { return h.CipherSuite != "" }, ofCapture, nil},
	{nameRefersTo, func(h *Header) bool { return h.RefersTo != "" }, []Type{Metadata, Revisit, Conversion}, nil},
	{nameRefersToTargetURI, func(h *Header) bool { return h.RefersToTargetURI != "" }, []Type{Revisit}, nil},
	{nameRefersToDate, func(h *Header) bool { return !h.RefersToDate.IsZero() }, []Type{Revisit}, nil},
	{nameProfile, func(h *Header) bool { return h.Profile != "" }, []Type{Revisit}, []Type{Revisit}},
	{namePayloadDigest, func(h *Header) bool { return h.PayloadDigest != "" }, withPayload, nil},
	{nameIdentifiedType, func(h *Header) bool { return h.IdentifiedPayloadType != "" }, withPayload, nil},
	{nameWarcinfoID, func(h *Header) bool { return h.WarcinfoID != "" }, types[1:], nil},
	{nameFilename, func(h *Header) bool { return h.Filename != "" }, []Type{Warcinfo}, nil},
	{nameSegmentNumber, func(h *Header) bool { return h.SegmentNumber != 0 }, types, []Type{Continuation}},
	{nameSegmentOriginID, func(h *Header) bool { return h.SegmentOriginID != "" }, []Type{Continuation}, []Type{Continuation}},
	{nameSegmentTotalLength, func(h *Header) bool { return h.SegmentTotalLength != 0 }, []Type{Continuation}, nil},
}
