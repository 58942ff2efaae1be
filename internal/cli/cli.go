// Package cli is the frame of the command-line programs fetchd, fetchctl, frontier and
// origin: streams, command line, help, version, shell completion, error messages and
// exit codes.
//
// # Exit codes
//
// An exit code means the same in every program:
//
//	0        success
//	1        the program failed, or the answer is no: a check did not hold
//	2        the command line, the environment, a settings file or a request is not usable
//	3 to 5   the results of a crawl
//	10 to 13 a fetch failed; one code for each failure type
//	20 to 22 something that the program needs failed: the service, the output, the database
//	130      SIGINT or SIGTERM ended the program before it was done
//
// The help of each command lists the codes that it uses.
package cli

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"go/doc/comment"
	"io"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"fetchd/internal/typo"
	"fetchd/internal/version"
)

// Streams are the standard streams of a program.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Program is one run of a command-line program.
type Program struct {
	Name string
	// Texts are the long texts of the help: a section "## COMMAND" for each command, and one for the program. The lines
	// after "Exit codes:" are the exit codes that it uses, each with its meaning unless that is the general one, and
	// those after "Examples:" its examples. A program without exit codes has those of its commands.
	Texts string
	Streams
	// Env looks up environment variables for flags that have a tag
	// `variable:"NAME"`. If it is nil, the tag has no effect.
	Env func(string) string
	// Clean makes an error message safe to print. If it is nil, messages are printed
	// unchanged.
	Clean func(string) string
}

// Manual is what the help of a command shows after its flags besides its text, and what its errors say. A command has one
// if it has the method Manual() Manual.
type Manual struct {
	// Tables are sections before the exit codes, each with a title that ends in a colon. They may
	// be empty.
	Tables string
	// Answers say what to use instead of flags that the command does not have, by flag, such as "-k".
	Answers map[string]string
	// Wrong says what to use instead of a value that a flag of the command cannot have, by flag, such as "--retry".
	Wrong map[string]string
	// Stray returns what to use instead of stray, the first of args that the command does not take, or "". It may be nil.
	Stray func(args []string, stray string) string
}

// completionText is the text of [Completion].
//
//go:embed help.txt
var completionText string

// Completion is the command that prints a completion script. [Program.Parse] runs it.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// maxColumns is how wide the help is at most.
const maxColumns = 100

// ErrAnswered is returned by [Program.Parse] if nothing is left to do.
var ErrAnswered = errors.New("the command line has been answered")

// Parse parses args into grammar, a pointer to a struct with kong's tags. It answers
// --help, --version and "completion" itself, and then returns [ErrAnswered].
func (p *Program) Parse(grammar any, args []string, options ...kong.Option) (*kong.Context, error) {
	answered, texts := false, p.texts()
	parser, err := kong.New(grammar, append([]kong.Option{
		kong.Name(p.Name),
		kong.Description(texts[p.Name].about),
		kong.Vars{"version": p.Name + " " + version.Long()},
		kong.Writers(p.Out, p.Err),
		kong.Exit(func(int) { answered = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true, WrapUpperBound: maxColumns}),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error { return p.printHelp(o, c, texts) }),
		kong.Resolvers(kong.ResolverFunc(p.fromEnvironment)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	for _, command := range parser.Model.Leaves(false) {
		if about := texts[command.Path()].about; about != "" {
			command.Detail, _, _ = strings.Cut(about, "\n\n") // the rest follows the flags
		}
	}
	parsed, err := parser.Parse(args)
	if answered { // even if a required argument is missing
		return nil, ErrAnswered
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, p.unusable(err, args)
	}
	if selected := parsed.Selected(); selected != nil {
		if c, ok := selected.Target.Addr().Interface().(*Completion); ok {
			if err := writeCompletion(p.Out, c.Shell, parser.Model); err != nil {
				return nil, OutputError(err)
			}
			return nil, ErrAnswered
		}
	}
	return parsed, nil
}

// unknownFlag matches the start of kong's error about a flag. To kong all letters after an unknown one are alike.
var unknownFlag = regexp.MustCompile(`^unknown flag (--[\w.-]*|-[^-])`)

// unusable returns the error for args, which kong does not accept.
func (p *Program) unusable(err error, args []string) error {
	command, manual := p.Name, Manual{}
	var node *kong.Node
	if failed, ok := errors.AsType[*kong.ParseError](err); ok && failed.Context.Selected() != nil {
		node = failed.Context.Selected()
		command, manual = node.FullPath(), manualOf(node)
	} else if ok {
		node = failed.Context.Model.Node
		manual = manualOf(node)
	}
	text := err.Error() //nolint:forbidigo // kong's errors have no type
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if answer := manual.answer(node, m[1], args); answer != "" {
			return &Error{Code: ExitUsage, Err: errors.New(answer)}
		}
		if !strings.HasPrefix(m[1], "--") {
			err = errors.New(m[0])
		}
	} else if flag, _, ok := strings.Cut(text, ": "); ok && manual.Wrong[flag] != "" {
		return &Error{Code: ExitUsage, Err: fmt.Errorf("%s: %s", flag, manual.Wrong[flag])}
	} else if flag, value, ok := strings.Cut(text, `: netip.ParsePrefix("`); ok {
		value, _, _ = strings.Cut(value, `"`)
		err = fmt.Errorf("%s: %s is not a prefix: give one such as 10.1.0.0/16, or 1.2.3.4/32 for one address", flag, value)
	} else if stray, ok := strings.CutPrefix(text, "unexpected argument "); ok && manual.Stray != nil {
		if answer := manual.Stray(args, stray); answer != "" {
			return &Error{Code: ExitUsage, Err: errors.New(answer)}
		}
	}
	return &Error{Code: ExitUsage, Err: err, Hint: fmt.Sprintf("Run %q for the flags.", command+" --help")}
}

// answer returns what to use instead of a flag that the command does not have, and of others behind the same dash.
func (m Manual) answer(node *kong.Node, flag string, args []string) string {
	flags := []string{flag}
	for _, arg := range args {
		behind := m.unknown(node, arg)
		if slices.ContainsFunc(behind, func(f string) bool { return strings.HasPrefix(f, flag) || flag == "--" && f[len(f)-1] == '-' }) {
			flags = behind
			break
		}
	}
	var answers []string
	for _, f := range flags {
		if m.Answers[f] != "" {
			answers = append(answers, f+": there is no such flag: "+m.Answers[f])
		}
	}
	return strings.Join(answers, "; ")
}

// unknown returns the flags behind one dash that the command does not have but answers. To kong a flag has one
// letter; other programs have some of two.
func (m Manual) unknown(node *kong.Node, arg string) (flags []string) {
	letters, ok := strings.CutPrefix(arg, "-")
	if !ok || node == nil || strings.HasPrefix(letters, "-") {
		return nil
	}
	for len(letters) > 0 {
		n := min(2, len(letters))
		if n < 2 || m.Answers["-"+letters[:n]] == "" {
			n = 1
		}
		f := "-" + letters[:n]
		known := shortFlag(node, f[1:])
		switch {
		case known == nil && m.Answers[f] == "", known != nil && !known.IsBool():
			return flags // the rest is a value
		case known == nil:
			flags = append(flags, f)
		}
		letters = letters[n:]
	}
	return flags
}

// shortFlag returns the flag of a command with this letter, or nil.
func shortFlag(node *kong.Node, letter string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			if string(flag.Short) == letter {
				return flag
			}
		}
	}
	return nil
}

// Command returns the command that the user selected, for its run method. Every command
// of the grammar must be a T.
func Command[T any](parsed *kong.Context) T {
	command, _ := parsed.Selected().Target.Addr().Interface().(T)
	return command
}

// fromEnvironment resolves flags that are not on the command line.
func (p *Program) fromEnvironment(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if name := flag.Tag.Get("variable"); name != "" && p.Env != nil && p.Env(name) != "" {
		return p.Env(name), nil
	}
	return nil, nil
}

// printHelp prints kong's help, then the exit codes and the examples of the command. A command with the tag ownflags uses
// no flag of the program except --help.
func (p *Program) printHelp(o kong.HelpOptions, c *kong.Context, texts map[string]longText) error {
	path, tables := p.Name, ""
	node := c.Selected()
	if node != nil {
		path, tables = node.Path(), manualOf(node).Tables
		for _, flag := range c.Model.Flags {
			flag.Hidden = flag.Hidden || node.Tag.Has("ownflags") && flag.Name != "help"
		}
	}
	if err := kong.DefaultHelpPrinter(o, c); err != nil {
		return OutputError(err)
	}
	exits := texts[path].exits
	if node == nil && len(exits) == 0 {
		for _, text := range texts {
			for code := range text.exits {
				exits[code] = ""
			}
		}
	}
	examples := strings.Trim(texts[path].examples, "\n")
	if examples != "" {
		examples = "\nExamples:\n" + strings.ReplaceAll(examples, "PROGRAM", p.Name) + "\n"
	}
	if tables != "" {
		tables = "\n" + tables
	}
	if _, err := fmt.Fprintf(c.Stdout, "%s%s\nExit codes:\n%s%s", p.details(texts[path].about, node != nil), tables, exitTable(exits), examples); err != nil {
		return OutputError(err)
	}
	return nil
}

// details returns what follows the flags of a command: all but the first paragraph of its text.
func (p *Program) details(about string, command bool) string {
	_, rest, ok := strings.Cut(about, "\n\n")
	if !ok || !command {
		return ""
	}
	columns, _ := TerminalSize(p.Out)
	text := (&comment.Printer{TextWidth: min(columns, maxColumns)}).Text(new(comment.Parser).Parse(rest))
	return "\nDetails:\n\n" + string(text)
}

// longText is a section of [Program.Texts].
type longText struct {
	about, examples string
	exits           map[int]string
}

func (p *Program) texts() map[string]longText {
	texts := map[string]longText{p.Name: {exits: make(map[int]string)}}
	for section := range strings.SplitSeq("\n"+completionText+"\n"+p.Texts, "\n## ") {
		path, text, _ := strings.Cut(section, "\n")
		text, examples, _ := strings.Cut("\n"+text, "\nExamples:\n")
		about, codes, _ := strings.Cut(text, "\nExit codes:\n")
		exits := make(map[int]string)
		for line := range strings.Lines(codes) {
			code, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.Atoi(code); err == nil {
				exits[n] = strings.TrimSpace(meaning)
			}
		}
		texts[path] = longText{strings.TrimSpace(about), examples, exits}
	}
	return texts
}

func manualOf(node *kong.Node) Manual {
	if m, ok := node.Target.Addr().Interface().(interface{ Manual() Manual }); ok {
		return m.Manual()
	}
	return Manual{}
}

// Errorf prints an error.
func (p *Program) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.Clean != nil {
		text = p.Clean(text)
	}
	_, _ = fmt.Fprintf(p.Err, "%s: %s\n", p.Name, text) // a failed write cannot be reported
}

// Hintf prints a line that belongs to the last error. It does not call Clean.
func (p *Program) Hintf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Err, "  "+format+"\n", args...) // a failed write cannot be reported
}

// WarnVariables prints a warning for each environment variable that has no effect.
func WarnVariables(w io.Writer, program string, variables []typo.Variable) {
	for _, v := range variables {
		_, _ = fmt.Fprintf(w, "%s: %s\n", program, v) // a failed write cannot be reported
	}
}

// Interruptible returns a context that is cancelled by the first SIGINT or SIGTERM. The
// second one ends the process at once.
func Interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	// A shell starts the background jobs of a script with SIGINT ignored. Stop would ignore it again.
	ignored := signal.Ignored(os.Interrupt)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		if !ignored {
			signal.Stop(signals) // before the program says that a second signal ends it at once
		}
		cancel()
		if ignored {
			<-signals
			os.Exit(ExitInterrupted) //nolint:forbidigo // main may be waiting for the drain
		}
	}()
	return ctx, cancel
}
