package get

import (
	"fetchd/cmd/fetchctl/reflex"
	"fetchd/internal/cli"
)

// Manual lists the exit codes of the command.
func (c *Command) Manual() cli.Manual {
	return cli.Manual{Exits: cli.Codes(cli.ExitTransient, cli.ExitPermanent, cli.ExitRateLimited, cli.ExitNeedsAuth, cli.ExitNotIdempotent, cli.ExitService, cli.ExitOutput, cli.ExitInterrupted).
		With(cli.ExitOK, "success, 304, or a redirect that is not followed").
		With(cli.ExitNotIdempotent, "the request was not sent again, because it may have taken effect; also if the service was lost in between"), Tables: reflex.GetHelp(), Answers: reflex.GetAnswers(), Stray: reflex.GetStray}
}
