package warc

import (
	"fmt"
	"strconv"
	"time"
)

// encoder appends fields to a head. It keeps the first error.
type encoder struct {
	b      []byte
	fields int
	err    error
}

// field appends a field, whether its value is empty or not.
func (e *encoder) field(f Field) {
	e.between(f, "", "")
}

// between appends a field whose value is between two strings.
func (e *encoder) between(f Field, before, after string) {
	if err := f.check(); err != nil && e.err == nil {
		e.err = err
	}
	start := len(e.b)
	e.name(f.Name)
	e.b = append(e.b, before...)
	e.b = append(e.b, f.Value...)
	e.b = append(e.b, after...)
	e.b = append(e.b, "\r\n"...)
	if len(e.b)-start > defaultLimits.Line && e.err == nil {
		e.err = fmt.Errorf("%s: the line is longer than %d bytes", f.Name, defaultLimits.Line)
	}
}

// name begins a field.
func (e *encoder) name(name string) {
	e.b = append(e.b, name...)
	e.b = append(e.b, ": "...)
	e.fields++
}

// optional appends a field if its value is not empty.
func (e *encoder) optional(name, value string) {
	if value != "" {
		e.field(Field{name, value})
	}
}

func (e *encoder) id(name, value string) {
	if value != "" {
		e.between(Field{name, value}, "<", ">")
	}
}

func (e *encoder) number(name string, n int64) {
	e.name(name)
	e.b = strconv.AppendInt(e.b, n, 10)
	e.b = append(e.b, "\r\n"...)
}

func (e *encoder) optionalNumber(name string, n int64) {
	if n != 0 {
		e.number(name, n)
	}
}

func (e *encoder) date(name string, t time.Time) {
	if err := checkDate(t); err != nil && e.err == nil {
		e.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	e.name(name)
	e.b = t.UTC().AppendFormat(e.b, dateFormat)
	e.b = append(e.b, "\r\n"...)
}

// encode appends the head of a record to b.
func (h *Header) encode(b []byte, length int64) ([]byte, error) {
	if faults := h.check(); len(faults) > 0 {
		return nil, faults[0]
	}
	e := encoder{b: append(b, "WARC/1.1\r\n"...)}
	e.field(Field{nameType, string(h.Type)})
	e.id(nameID, h.ID)
	e.date(nameDate, h.Date)
	e.optional(nameTargetURI, h.TargetURI)
	for _, id := range h.ConcurrentTo {
		e.id(nameConcurrentTo, id)
	}
	e.id(nameRefersTo, h.RefersTo)
	e.optional(nameRefersToTargetURI, h.RefersToTargetURI)
	if !h.RefersToDate.IsZero() {
		e.date(nameRefersToDate, h.RefersToDate)
	}
	e.optional(nameProfile, h.Profile)
	e.optional(nameTruncated, string(h.Truncated))
	if h.IPAddress.IsValid() {
		e.field(Field{nameIPAddress, h.IPAddress.Unmap().String()})
	}
	for _, p := range h.Protocol {
		e.field(Field{nameProtocol, p})
	}
	e.optional(nameCipherSuite, h.CipherSuite)
	e.optional(nameIdentifiedType, h.IdentifiedPayloadType)
	e.id(nameWarcinfoID, h.WarcinfoID)
	e.optional(nameFilename, h.Filename)
	e.optionalNumber(nameSegmentNumber, h.SegmentNumber)
	e.id(nameSegmentOriginID, h.SegmentOriginID)
	e.optionalNumber(nameSegmentTotalLength, h.SegmentTotalLength)
	e.optional(nameBlockDigest, string(h.BlockDigest))
	e.optional(namePayloadDigest, string(h.PayloadDigest))
	e.optional(nameContentType, h.ContentType)
	e.number(nameContentLength, length)
	return h.encodeExtra(&e)
}

// encodeExtra appends the other fields and ends the head.
func (h *Header) encodeExtra(e *encoder) ([]byte, error) {
	for _, f := range h.Extra {
		if name, defined := canonical(f.Name); defined && e.err == nil {
			e.err = fmt.Errorf("%s has a place in Header and cannot be in Extra", name)
		}
		e.field(f)
	}
	e.b = append(e.b, "\r\n"...)
	switch {
	case e.err != nil:
		return nil, e.err
	case e.fields > defaultLimits.Fields:
		return nil, fmt.Errorf("the head has more than %d fields", defaultLimits.Fields)
	case len(e.b) > defaultLimits.Head:
		return nil, fmt.Errorf("the head is longer than %d bytes", defaultLimits.Head)
	}
	return e.b, nil
}
