package get

import (
	"fetchd/internal/cli"
	"fetchd/internal/reflex"
)

// Manual says what the flags of curl and wget mean here.
func (c *Command) Manual() cli.Manual {
	answers := reflex.GetAnswers()
	answers["--allow-non-idempotent"] = "--idempotency-key implies it"
	answers["--har"] = "the console saves HAR, and --warc WARC files"
	return cli.Manual{Tables: reflex.GetHelp(), Answers: answers, Wrong: reflex.GetWrong, Stray: reflex.GetStray}
}
