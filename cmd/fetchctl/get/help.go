package get

import (
	"fetchd/cmd/fetchctl/reflex"
	"fetchd/internal/cli"
)

// Manual says what the flags of curl and wget mean here.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Tables: reflex.GetHelp(), Answers: reflex.GetAnswers(), Wrong: reflex.GetWrong, Stray: reflex.GetStray}
}
