package origin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// unset is the value of a number that was not given.
const unset = -1

// maxNumber bounds numbers of the grammar: 1 TiB.
const maxNumber = 1 << 40

// maxMemory bounds what is held in memory for one answer: 64 MiB.
const maxMemory = 64 << 20

// param is one parameter of a step.
type param struct {
	name   string
	syntax string
	doc    string
	set    func(s *step, value string) error
}

// number sets a size or a count of 0 to most.
func number(most int64, target func(*step) *int64) func(*step, string) error {
	return func(s *step, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > most {
			return fmt.Errorf("%w: want a number from 0 to %d", errGrammar, most)
		}
		*target(s) = n
		return nil
	}
}

// text sets any string.
func text(target func(*step) *string) func(*step, string) error {
	return func(s *step, value string) error {
		*target(s) = value
		return nil
	}
}

// given sets a string for which empty and absent differ.
func given(target func(*step) **string) func(*step, string) error {
	return func(s *step, value string) error {
		*target(s) = &value
		return nil
	}
}

// flag sets a switch that takes no value.
func flag(target func(*step) *bool) func(*step, string) error {
	return func(s *step, value string) error {
		if value != "" {
			return fmt.Errorf("%w: takes no value", errGrammar)
		}
		*target(s) = true
		return nil
	}
}

// choice sets one of the given words.
func choice(target func(*step) *string, words ...string) func(*step, string) error {
	return func(s *step, value string) error {
		for _, word := range words {
			if value == word {
				*target(s) = value
				return nil
			}
		}
		return fmt.Errorf("%w: want one of %s", errGrammar, strings.Join(words, ", "))
	}
}

// duration sets a Go duration such as 1.5s or 20ms.
func duration(target func(*step) *time.Duration) func(*step, string) error {
	return func(s *step, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%w: want a duration such as 20ms", errGrammar)
		}
		*target(s) = d
		return nil
	}
}

// field adds a field of a fixed name with a raw value.
func field(name string) func(*step, string) error {
	return func(s *step, value string) error {
		s.answer.fields = append(s.answer.fields, fieldSpec{name: name, value: value})
		return nil
	}
}

// dateField adds a field whose value is a date so many seconds from now.
func dateField(name string) func(*step, string) error {
	return func(s *step, value string) error {
		after, err := seconds(value)
		if err != nil {
			return err
		}
		s.answer.fields = append(s.answer.fields, fieldSpec{name: name, dated: true, after: after})
		return nil
	}
}

func seconds(value string) (time.Duration, error) {
	const century = 100 * 366 * 24 * 3600
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < -century || n > century {
		return 0, fmt.Errorf("%w: want seconds, within a century", errGrammar)
	}
	return time.Duration(n) * time.Second, nil
}

// anyField adds a field given as Name=Value.
func anyField(s *step, value string) error {
	name, value, ok := strings.Cut(value, "=")
	if !ok || name == "" {
		return fmt.Errorf("%w: want Name=Value", errGrammar)
	}
	return field(name)(s, value)
}

// drip sets BYTES@DURATION; BYTES/DURATION works too, its slash encoded.
func drip(s *step, value string) error {
	count, every, ok := strings.Cut(value, "@")
	if !ok {
		count, every, _ = strings.Cut(value, "/")
	}
	if err := number(1<<20, func(s *step) *int64 { return &s.answer.dripBytes })(s, count); err != nil {
		return fmt.Errorf("BYTES@DURATION or BYTES%%2FDURATION: %w", err)
	}
	if s.answer.dripBytes == 0 {
		return fmt.Errorf("%w: a drip has at least one byte", errGrammar)
	}
	return duration(func(s *step) *time.Duration { return &s.answer.dripEvery })(s, every)
}

// code sets an HTTP/2 error code, decimal or 0x.
func code(s *step, value string) error {
	n, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return fmt.Errorf("%w: want an error code", errGrammar)
	}
	s.code = uint32(n)
	return nil
}

// lastStream sets N or "this".
func lastStream(s *step, value string) error {
	if _, err := strconv.ParseUint(value, 10, 31); err != nil && value != lastThis {
		return fmt.Errorf("%w: want a stream number or %q", errGrammar, lastThis)
	}
	s.last = value
	return nil
}
