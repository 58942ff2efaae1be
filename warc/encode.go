package warc

import (
	"fmt"
	"strconv"
)

// encoder appends fields to a head. It keeps the first error.
type encoder struct {
	b      []byte
	fields int
	err    error
}

// field appends a field, whether its value is empty or not.
func (e *encoder) field(f Field) {
	if err := f.check(); err != nil && e.err == nil {
		e.err = err
	}
	start := len(e.b)
	e.b = append(e.b, f.Name...)
	e.b = append(e.b, ": "...)
	e.b = append(e.b, f.Value...)
	e.b = append(e.b, "\r\n"...)
	e.fields++
	if len(e.b)-start > defaultLimits.Line && e.err == nil {
		e.err = fmt.Errorf("%s: the line is longer than %d bytes", f.Name, defaultLimits.Line)
	}
}

// optional appends a field if its value is not empty.
func (e *encoder) optional(name, value string) {
	if value != "" {
		e.field(Field{name, value})
	}
}

func (e *encoder) id(name, value string) {
	if value != "" {
		e.field(Field{name, "<" + value + ">"})
	}
}

func (e *encoder) number(name string, n int64) {
	if n != 0 {
		e.field(Field{name, strconv.FormatInt(n, 10)})
	}
}

// encode appends the head of a record to b.
func (h *Header) encode(b []byte, length int64) ([]byte, error) {
	if faults := h.check(); len(faults) > 0 {
		return nil, faults[0]
	}
	if err := checkDate(h.Date); err != nil {
		return nil, fmt.Errorf("%s: %w", nameDate, err)
	}
	e := encoder{b: append(b, "WARC/1.1\r\n"...)}
	e.field(Field{nameType, string(h.Type)})
	e.id(nameID, h.ID)
	e.field(Field{nameDate, h.Date.UTC().Format(dateFormat)})
	e.optional(nameTargetURI, h.TargetURI)
	for _, id := range h.ConcurrentTo {
		e.id(nameConcurrentTo, id)
	}
	e.id(nameRefersTo, h.RefersTo)
	e.optional(nameRefersToTargetURI, h.RefersToTargetURI)
	if !h.RefersToDate.IsZero() {
		if err := checkDate(h.RefersToDate); err != nil {
			return nil, fmt.Errorf("%s: %w", nameRefersToDate, err)
		}
		e.field(Field{nameRefersToDate, h.RefersToDate.UTC().Format(dateFormat)})
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
	e.number(nameSegmentNumber, h.SegmentNumber)
	e.id(nameSegmentOriginID, h.SegmentOriginID)
	e.number(nameSegmentTotalLength, h.SegmentTotalLength)
	e.optional(nameBlockDigest, string(h.BlockDigest))
	e.optional(namePayloadDigest, string(h.PayloadDigest))
	e.optional(nameContentType, h.ContentType)
	e.field(Field{nameContentLength, strconv.FormatInt(length, 10)})
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
