package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"fetchd/internal/cli"
	"fetchd/test/clitest"
	"fetchd/test/must"
	"fetchd/test/need"
)

// completed is a program with everything that the scripts treat differently.
type completed struct {
	Config  string `placeholder:"FILE" help:"It's a [file]: read. Nothing else."`
	Quiet   bool   `short:"q" negatable:"" help:"Say nothing."`
	Unsaid  bool   `hidden:"" help:"Not told."`
	Address string `placeholder:"HOST:PORT"`

	Get struct {
		URL     string   `arg:""`
		Profile string   `short:"p" enum:"standard,download" default:"standard" help:"Rules: $$HOME and \"more\"."`
		Method  string   `complete:"GET,POST" help:"Any."`
		Header  []string `short:"H" help:"Repeatable."`
		Dir     string   `placeholder:"DIR"`
	} `cmd:"" help:"Fetch: a URL."`
	Shell struct {
		Name string `arg:"" enum:"bash,zsh"`
	} `cmd:"" help:"Print."`
	Load struct {
		Input []string `arg:"" name:"FILE"`
	} `cmd:"" help:"Load files."`
	Remote struct {
		Add  struct{} `cmd:"" help:"Add one."`
		Drop struct {
			Force bool `help:"At once."`
		} `cmd:"" help:"Drop one."`
	} `cmd:"" help:"Others."`
	Secret struct{} `cmd:"" hidden:"" help:"Not told."`
}

func script(t *testing.T, shell string) string {
	t.Helper()
	parser, err := kong.New(new(completed), kong.Name("prog"))
	must.Succeed(t, err)
	var out bytes.Buffer
	if err := cli.WriteCompletion(&out, shell, parser.Model); err != nil {
		t.Fatalf("Write for %s: %v", shell, err)
	}
	return out.String()
}

// scriptFile returns a file with the script, in a folder with two other files and a folder.
func scriptFile(t *testing.T, shell string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"script": script(t, shell), "apple one.txt": "", "avocado": ""} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "attic"), 0o700))
	return filepath.Join(dir, "script")
}

// shell finds a shell, or skips.
func shell(t *testing.T, name string) string {
	t.Helper()
	return need.Program(t, name, name)
}

var (
	commands  = []string{"get", "load", "remote", "shell"}
	rootFlags = []string{"--address", "--config", "--help", "--no-quiet", "--quiet", "-h", "-q"}
	getFlags  = slices.Sorted(slices.Values(append([]string{"--dir", "--header", "--method", "--profile", "-H", "-p"}, rootFlags...)))
)

// cases are command lines and the completions of their last word. A row that names shells is
// only for them.
var cases = []struct {
	name, line string
	want       []string
	shells     string
}{
	{"commands", "prog ", commands, ""},
	{"the start of a command", "prog g", []string{"get"}, ""},
	{"no such command", "prog x", nil, ""},
	{"a hidden command", "prog sec", nil, ""},
	{"flags of the program", "prog -", rootFlags, "bash"},
	{"a flag of the program", "prog --conf", []string{"--config"}, "bash fish"},
	{"a hidden flag", "prog --uns", nil, ""},
	{"a flag of another command", "prog --prof", nil, ""},
	{"commands after a flag", "prog --quiet r", []string{"remote"}, ""},
	{"commands after a flag's value", "prog --config get r", []string{"remote"}, "bash"},
	{"commands after an address", "prog --address 127.0.0.1:80 r", []string{"remote"}, ""},
	{"commands after --flag=value", "prog --address=x r", []string{"remote"}, ""},
	{"flags of a command", "prog get -", getFlags, "bash"},
	{"a flag of a command", "prog get --prof", []string{"--profile"}, "bash fish"},
	{"a flag after a URL", "prog get http://h:80/ --prof", []string{"--profile"}, "bash fish"},
	{"a flag of the program in a command", "prog get --qu", []string{"--quiet"}, ""},
	{"no flag after --", "prog get -- --prof", nil, "bash"},
	{"an enum", "prog get --profile ", []string{"download", "standard"}, ""},
	{"an enum after =", "prog get --profile=d", []string{"download"}, "bash"},
	{"an enum after = alone", "prog get --profile=", []string{"download", "standard"}, "bash"},
	{"an enum of the short flag", "prog get -p d", []string{"download"}, ""},
	{"values that are known", "prog get --method P", []string{"POST"}, ""},
	{"values that are unknown", "prog get --header x", nil, ""},
	{"a URL is not a file", "prog get a", nil, ""},
	{"an argument that is an enum", "prog shell ", []string{"bash", "zsh"}, ""},
	{"a second argument", "prog shell bash b", nil, "bash"},
	{"files of a flag", "prog --config av", []string{"avocado"}, ""},
	{"files with spaces", "prog --config app", []string{"apple one.txt"}, "bash"},
	{"folders of a flag", "prog get --dir a", []string{"attic"}, "bash"},
	{"nested commands", "prog remote ", []string{"add", "drop"}, ""},
	{"flags of a nested command", "prog remote drop --fo", []string{"--force"}, ""},
	{"flags of a neighbor", "prog remote add --fo", nil, ""},
}

func forShell(shells, shell string) bool {
	return shells == "" || slices.Contains(strings.Fields(shells), shell)
}

func TestBash(t *testing.T) {
	t.Parallel()
	file := scriptFile(t, "bash")
	for _, row := range cases {
		if !forShell(row.shells, "bash") {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			compare(t, row.line, row.want, clitest.Bash(t, file, row.line))
		})
	}
}

func TestFish(t *testing.T) {
	t.Parallel()
	fish, file := shell(t, "fish"), scriptFile(t, "fish")
	for _, row := range cases {
		if !forShell(row.shells, "fish") {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), fish, "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, file, row.line)
			cmd.Dir = filepath.Dir(file)
			cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_CONFIG_HOME="+cmd.Dir, "XDG_DATA_HOME="+cmd.Dir)
			var got []string
			for _, line := range run(t, cmd) {
				word, _, _ := strings.Cut(line, "\t") // the rest describes it
				got = append(got, word)
			}
			compare(t, row.line, row.want, got)
		})
	}
}

// zshAsk completes in a real zsh on its own terminal, and writes the words that zsh would offer.
// It types only after the editor reports that it reads, and then waits until the widget has run,
// because zsh may miss earlier keys. The terminal also shows what is typed, so the marks are
// typed in two halves. The quotes between the halves are double, because single ones would end
// the script here.
const zshAsk = `
zmodload zsh/zpty || exit 3
zpty z zsh -f -i
zpty -w z 'PROMPT= RPROMPT=; unsetopt zle_bracketed_paste 2>/dev/null; stty -echo; cd '${(q)2}
zpty -w z 'autoload -Uz compinit; compinit -u -D; source '${(q)1}
zpty -w z 'compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a __hits; builtin compadd -A __hits "$@"
  local __w; for __w in $__hits; do print -r -- "OFFER<$__w>"; done >>'${(q)4}'
  builtin compadd "$@"
}'
zpty -w z '_ask() { _main_complete; compstate[insert]=; compstate[list]=; print -n AS""KED }; zle -C ask complete-word _ask; bindkey "^I" ask'
zpty -w z 'zle-line-init() { print -n REA""DY }; zle -N zle-line-init'
zpty -r z line '*READY*'
zpty -w -n z "$3"$'\t'
zpty -r z line '*ASKED*'
zpty -d z
`

func TestZsh(t *testing.T) {
	t.Parallel()
	zsh, file := shell(t, "zsh"), scriptFile(t, "zsh")
	for _, row := range cases {
		if !forShell(row.shells, "zsh") {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			offers := filepath.Join(t.TempDir(), "offers")
			cmd := exec.CommandContext(t.Context(), zsh, "-f", "-c", zshAsk, "zsh", file, filepath.Dir(file), row.line, offers)
			cmd.Env = append(os.Environ(), "TERM=dumb", "HOME="+filepath.Dir(file))
			run(t, cmd)
			data, err := os.ReadFile(offers)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(string(data)) {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "OFFER<"), ">"))
			}
			compare(t, row.line, row.want, got)
		})
	}
}

// run returns the lines that a command writes, without empty ones.
func run(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

func compare(t *testing.T, line string, want, got []string) {
	t.Helper()
	got = slices.Compact(slices.Sorted(slices.Values(got)))
	for i := range got {
		got[i] = strings.TrimSuffix(got[i], "/")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q is completed wrongly (-want +got):\n%s", line, diff)
	}
}
