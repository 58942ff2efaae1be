package conformance_test

// unnoticed lists mutants that no vector can notice, grouped by reason.
var unnoticed = []struct {
	why  string
	keys []string
}{
	{
		why: "Classes is not a rule. It lists the classes for tests and tools, which compare it with the contract.",
		keys: []string{
			"class.go Classes: 0 => 1",
			"class.go Classes: 1 => 0",
			"class.go Classes: 1 => 2",
			"class.go Classes: NoClass => DNSNotFound",
			"class.go Classes: 1 => 0 (2)",
			"class.go Classes: 1 => 2 (2)",
			"class.go Classes: int(c) < len(classes) => int(c) <= len(classes)",
		},
	},
	{
		why: "Only the name in the row of NoClass is read: without a failure there is no rule, type or retry.",
		keys: []string{
			`class.go classes: "" => "~" (2)`,
			`decide.go class: "" => "~"`,
			"class.go classes: NoFailureType => Transient",
			"class.go classes: false => true",
		},
	},
	{
		why: "P3, P4, P5 and P7 end the fetch before the class could be retried (I7).",
		keys: []string{
			"class.go classes: false => true (19)",
			"class.go classes: false => true (20)",
			"class.go classes: false => true (21)",
			"class.go classes: false => true (23)",
			"class.go classes: false => true (24)",
		},
	},
	{
		why: "Explain refuses unknown classes, and Decide returns none.",
		keys: []string{
			"class.go String: int(c) >= len(classes) => false",
			"class.go String: int(c) >= len(classes) => int(c) > len(classes)",
			`class.go String: "" => "~"`,
			"class.go With: int(c) >= len(classes) => int(c) > len(classes)",
		},
	},
	{
		why:  "A status under 200 is N10 before it could be a success.",
		keys: []string{"decide.go Decide: 200 => 199"},
	},
	{
		why:  "Without a response the status is 0, which does not exceed 299 either.",
		keys: []string{"decide.go responseFault: 0 => 1"},
	},
	{
		why: "Explain refuses an empty observation, and every fault is in one of the lists.",
		keys: []string{
			"decide.go responseFault: NoClass => DNSNotFound (3)",
			"decide.go responseFault: o.Status == 0 || o.Faults&^listed != 0 => false",
			"decide.go responseFault: o.Status == 0 || o.Faults&^listed != 0 => o.Status == 0 && o.Faults&^listed != 0",
			"decide.go responseFault: 0 => 1 (3)",
			"decide.go responseFault: Internal => OutOfMemory",
		},
	},
	{
		why:  "A 300 is not followed, so it ends as H9 before its body is looked at.",
		keys: []string{"decide.go responseFault: 299 => 300"},
	},
	{
		why: "Explain refuses a max_attempts over 11, and a fetch has no more attempts.",
		keys: []string{
			"policy.go Backoff: 1024 => 1023",
			"policy.go Backoff: 1024 => 1025",
		},
	},
	{
		why:  "A delay is reported only with a retry.",
		keys: []string{"decide.go decideFailure: 0 => 1 (2)"},
	},
	{
		why: "Explain refuses statuses under 400 in additional_status_codes and under 408 in excluded_status_codes.",
		keys: []string{
			"policy.go retries: 0 => 1",
		},
	},
	{
		why:  "Explain refuses a base_delay over max_delay, so with a limit of 0 there is nothing to limit.",
		keys: []string{"policy.go Backoff: 0 => 1"},
	},
	{
		why: "Both branches return the same at the boundary.",
		keys: []string{
			"policy.go Backoff: d >= float64(limit) => d > float64(limit)",
			"policy.go Backoff: d > 0 => d >= 0",
		},
	},
	{
		why: "The remainder of a division by 1 is 0, and Explain refuses a negative max_jitter.",
		keys: []string{
			"policy.go Jitter: limit <= 0 => false",
			"policy.go Jitter: limit <= 0 => limit < 0",
		},
	},
	{
		why: "Explain refuses waits that are long enough to overflow (spec §12).",
		keys: []string{
			"policy.go addSaturating: a > math.MaxInt64-b => a >= math.MaxInt64-b",
		},
	},
	{
		why: "A value that is returned with false is not used.",
		keys: []string{
			"retryafter.go RetryAfter: 0 => 1",
		},
	},
	{
		why: "Any number over the limit saturates, and every such number has digits.",
		keys: []string{
			"retryafter.go delaySeconds: 1 => 2",
			`retryafter.go delaySeconds: "" => "~"`,
		},
	},
	{
		why:  "It is only an optimization: a text that is shorter than every format has none of them.",
		keys: []string{`retryafter.go parse: len(s) < len("Mon Jan _2 15:04:05 2006") => false`},
	},
	{
		why:  "The text before the first space is not compared.",
		keys: []string{"retryafter.go isExact: 0 => 1"},
	},
}

// equivalent returns the same list as a map from key to reason.
func equivalent() map[string]string {
	reasons := make(map[string]string)
	for _, group := range unnoticed {
		for _, key := range group.keys {
			reasons[key] = group.why
		}
	}
	return reasons
}
