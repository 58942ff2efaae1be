package get

import (
	"fetchd/internal/cli"
	"fetchd/internal/reflex"
)

// Manual says what the flags of curl and wget mean here.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Tables: reflex.GetHelp(), Answers: reflex.GetAnswers(), Wrong: reflex.GetWrong, Stray: reflex.GetStray}
}
