package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fetchd/test/need"
)

// TestMain runs the server of the documents if the program is called serve.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "serve" {
		m.Run()
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("hello\n"))
		_ = c.Close()
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		blocks     []block
		files      map[string]string
		faults     []string
	}{
		{"a block", "one\n\n```sh\na\nb\n```\n", []block{{line: 3, text: "a\nb\n"}}, nil, nil},
		{"two with prose between", "```sh\na\n```\nthen\n```sh\nb\n```", []block{{line: 1, text: "a\n"}, {line: 5, text: "b\n"}}, nil, nil},
		{"with its output", "```sh\na\n```\n\n```text\nx\ny\n```\n", []block{{line: 1, text: "a\n", want: "x\ny", hasWant: true}}, nil, nil},
		{"text after prose is no output", "```sh\na\n```\nEach prints\n```text\nx\n```\n", []block{{line: 1, text: "a\n"}}, nil, nil},
		{"text after another block is no output", "```sh\na\n```\n```json\n{}\n```\n```text\nx\n```\n", []block{{line: 1, text: "a\n"}}, nil, nil},
		{"not run", "<!-- not run: needs a cluster -->\n```sh\na\n```\n", []block{{line: 2, text: "a\n", notRun: "needs a cluster"}}, nil, nil},
		{"two marks", "<!-- needs: a b -->\n<!-- exit 11 -->\n```sh\na\n```\n", []block{{line: 3, text: "a\n", needs: []string{"a", "b"}, exit: 11}}, nil, nil},
		{"once", "<!-- once: it is there -->\n```sh\na\n```\n```text\nx\n```", []block{{line: 2, text: "a\n", want: "x", hasWant: true, once: "it is there"}}, nil, nil},
		{"in a list", "- item\n\n  ```sh\n  a\n    b\n  ```\n", []block{{line: 3, text: "a\n  b\n"}}, nil, nil},
		{"a file", "<!-- file: java/Main.java -->\n```java\nclass Main {}\n```\n", nil, map[string]string{"java/Main.java": "class Main {}\n"}, nil},
		{"other languages", "```go\na\n```\n```yaml\na: b\n```\n```\na ─▶ b\n```\n", nil, nil, nil},
		{"indented text in a list", "- item\n\n    more of it\n", nil, nil, nil},
		{"an indented line within a paragraph", "one\n    two\n", nil, nil, nil},
		{"a comment with a line between is no mark", "<!-- by hand -->\n\n```sh\na\n```\n", []block{{line: 3, text: "a\n"}}, nil, nil},

		{"an indented block", "one\n\n    go build\n", nil, nil, []string{"d.md:3: an indented block is never run: put ```sh before it and ``` after it"}},
		{"another shell", "```bash\na\n```\n", nil, nil, []string{"d.md:1: a block of bash is never run: call it sh"}},
		{"an unknown mark", "<!-- not ran: x -->\n```sh\na\n```\n", []block{{line: 2, text: "a\n"}},
			nil, []string{`d.md:2: the comment "not ran: x" above a shell block: want "not run: WHY", "needs: PROGRAM /FILE ...", "once: WHY" or "exit N", N from 1 to 255`}},
		{"a mark without a reason", "<!-- not run: -->\n```sh\na\n```\n", []block{{line: 2, text: "a\n"}},
			nil, []string{`d.md:2: the comment "not run:" above a shell block: want "not run: WHY", "needs: PROGRAM /FILE ...", "once: WHY" or "exit N", N from 1 to 255`}},
		{"exit 256", "<!-- exit 256 -->\n```sh\na\n```\n", []block{{line: 2, text: "a\n", exit: 256}},
			nil, []string{`d.md:2: the comment "exit 256" above a shell block: want "not run: WHY", "needs: PROGRAM /FILE ...", "once: WHY" or "exit N", N from 1 to 255`}},
		{"once without an output", "<!-- once: it is there -->\n```sh\na\n```\n", []block{{line: 2, text: "a\n", once: "it is there"}},
			nil, []string{`d.md:2: a block without its output is run once: remove the mark "once"`}},
		{"no end", "```sh\na\n", []block{{line: 1, text: "a\n\n"}}, nil, []string{"d.md:1: the block has no end"}},
		{"a file outside the tree", "<!-- file: ../x -->\n```java\na\n```\n", nil, nil,
			[]string{`d.md:2: the comment "file: ../x": want a path within the tree`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for i := range row.blocks {
				row.blocks[i].file = "d.md"
			}
			got := parse("d.md", row.text)
			want := &document{file: "d.md", blocks: row.blocks, files: row.files, faults: row.faults}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{}, block{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("parse(%q) (-want +got):\n%s", row.text, diff)
			}
		})
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, want, got string
		shows           bool
	}{
		{"the same", "a\nb", "a\nb\n", true},
		{"spaces at the end", "a", "a  \n\n", true},
		{"any text in a line", "a … c", "a 12 ms c\n", true},
		{"no text in a line", "a…c", "ac\n", true},
		{"any lines", "…\nz", "a\nb\nz\n", true},
		{"no lines", "…\nz\n…", "z\n", true},
		{"characters of patterns", "a.b (c) [d]", "a.b (c) [d]", true},
		{"another line", "a", "b", false},
		{"a line more", "a", "a\nb", false},
		{"a line less", "a\nb", "a", false},
		{"… does not leave its line", "a … c", "a\nc", false},
		{"a part of a line", "a", "ab", false},
		{"a dot is a dot", "a.b", "axb", false},
		{"nothing", "a", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := shows(row.want, row.got); got != row.shows {
				t.Errorf("shows(%q, %q) = %t, want %t", row.want, row.got, got, row.shows)
			}
		})
	}
}

func TestGateStep(t *testing.T) {
	t.Parallel()
	g := readGate(`step_demo() {
  go run ./cmd/demo
  go run ./cmd/demo --quiet
}

step_test() {
  tests go test ./...
}

step_all() {
  go run ./cmd/all
}

go vet ./...
run test 'Repeat it.'
run demo 'Repeat it.'
if true; then
  run all 'Repeat it.'
fi
`)
	for _, row := range []struct {
		name     string
		commands []string
		want     string
	}{
		{"a line", []string{"go run ./cmd/demo"}, "demo"},
		{"two lines", []string{"go run ./cmd/demo", "go run ./cmd/demo --quiet"}, "demo"},
		{"behind tests", []string{"go test ./..."}, "test"},
		{"the begin of a line", []string{"go run"}, ""},
		{"more than a line", []string{"go run ./cmd/demo --break H1"}, ""},
		{"lines of two steps", []string{"go run ./cmd/demo", "go test ./..."}, ""},
		{"a step that is not always run", []string{"go run ./cmd/all"}, ""},
		{"outside the steps", []string{"go vet ./..."}, ""},
		{"no command", nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := g.step(row.commands); got != row.want {
				t.Errorf("step(%q) = %q, want %q", row.commands, got, row.want)
			}
		})
	}
}

// TestRun runs documents of a small tree, one per row, and checks the messages.
func TestRun(t *testing.T) {
	t.Parallel()
	need.Linux(t, "documents run in namespaces")
	args := []string{"--net", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"}
	if os.Geteuid() != 0 {
		args = append([]string{"--map-root-user"}, args...)
	}
	if said, err := exec.CommandContext(t.Context(), "unshare", args...).CombinedOutput(); err != nil {
		need.Missing(t, "install the Debian package iproute2, and run it as root", "cannot create namespaces for network and processes: %v: %s", err, said)
	}
	const server = "```sh\nbin/serve &\n```\n"
	for _, row := range []struct {
		name, text string
		strict, ok bool
		say        []string
	}{
		{"commands in one shell", "```sh\na=1; cd bin\n```\n```sh\n[ \"$a\" = 1 ] && [ -x serve ]\n```\n", false, true, []string{"d.md: 2 blocks, 0 with their output"}},
		{"a command that fails", "```sh\nfalse\ntrue\n```\n", false, false, []string{"FAILED d.md:1: exit status 1, want 0", "  $ false"}},
		{"only blocks before it are run", "```sh\nfalse\n```\n```sh\necho second\n```\n", false, false, []string{"FAILED d.md:1"}},
		{"an exit status", "<!-- exit 11 -->\n```sh\n(exit 11)\n```\n```sh\ntrue\n```\n", false, true, nil},
		{"another exit status", "<!-- exit 11 -->\n```sh\n(exit 12)\n```\n", false, false, []string{"FAILED d.md:2: exit status 12, want 11"}},
		{"no failure where one is shown", "<!-- exit 11 -->\n```sh\ntrue\n```\n", false, false, []string{"FAILED d.md:2: exit status 0, want 11"}},
		{"output of both streams", "```sh\necho a; echo b >&2\n```\n```text\na\nb\n```\n", false, true, []string{"1 with their output"}},
		{"other output", "```sh\necho a\n```\n```text\nb\n```\n", false, false, []string{"FAILED d.md:1: it prints what is below", "  > b", "  | a"}},
		{"other output the second time", "```sh\necho x >>log; cat log\n```\n```text\nx\n```\n", false, false, []string{"FAILED d.md:1: a second run prints something else", "  > x\n  > x"}},
		{"once", "<!-- once: it grows -->\n```sh\necho x >>log; cat log\n```\n```text\nx\n```\n", false, true, nil},
		{"a server", server + "```sh\nbin/ask\n```\n```text\nhello\n```\n", false, true, nil},
		{"a server on a port that is taken", server + "```sh\nbin/serve &\n```\n", false, false, []string{"FAILED d.md:4: exit status 1", "what was started in the background listens nowhere"}},
		{"what git does not have", "```sh\n[ ! -e ignored ] && git status --short\n```\n```text\n\n```\n", false, true, nil},
		{"a file", "<!-- file: java/Main.java -->\n```java\nclass Main {}\n```\n```sh\ncat java/Main.java\n```\n```text\nclass Main {}\n```\n", false, true, nil},
		{"no network", "<!-- exit 1 -->\n```sh\nif (exec 3<>/dev/tcp/192.0.2.1/80) 2>/dev/null; then true; else (exit 1); fi\n```\n", false, true, nil},
		{"a mark", "<!-- not run: needs a cluster -->\n```sh\nfalse\n```\n", false, true, []string{"not run:\n  d.md:2: needs a cluster"}},
		{"a program that is missing", "<!-- needs: sh no-such-program -->\n```sh\nfalse\n```\n", false, true, []string{"d.md:2: no-such-program is not on the PATH"}},
		{"a file that is missing", "<!-- needs: sh /no/such/file -->\n```sh\nfalse\n```\n", false, true, []string{"d.md:2: /no/such/file does not exist"}},
		{"a program that is missing, in the gate", "<!-- needs: sh no-such-program -->\n```sh\nfalse\n```\n", true, false, []string{"d.md:2: no-such-program is not on the PATH"}},
		{"a mark, in the gate", "<!-- not run: needs a cluster -->\n```sh\nfalse\n```\n", true, true, []string{"not run:\n  d.md:2: needs a cluster"}},
		{"programs and files that are there", "<!-- needs: sh /bin/sh -->\n```sh\nfalse\n```\n", false, false, []string{"FAILED d.md:2"}},
		{"a step of the gate", "```sh\nmake it\n```\n", false, true, []string{"d.md:1: the step it runs it word for word"}},
		{"a fault of the document", "```bash\ntrue\n```\n```sh\ntrue\n```\n", false, false, []string{"d.md:1: a block of bash"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for name, text := range map[string]string{
				".ci/run":       "step_it() {\n  make it\n}\nrun it 'Make it.'\n",
				".gitignore":    "/ignored\n/log\n",
				"ignored":       "",
				"d.md":          row.text,
				"testdata.md":   "no block\n",
				"testdata/d.md": "```sh\nfalse\n```\n",
				"bin/ask":       "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/8080; cat <&3\n",
			} {
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(root, "bin", "serve")); err != nil {
				t.Fatal(err)
			}
			if _, err := git(t.Context(), root, "init", "-q"); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			ok, err := run(t.Context(), &out, root, nil, row.strict)
			if err != nil {
				t.Fatal(err)
			}
			if ok != row.ok {
				t.Errorf("run = %t, want %t", ok, row.ok)
			}
			for _, say := range row.say {
				if !strings.Contains(out.String(), say) {
					t.Errorf("the output does not contain %q", say)
				}
			}
			if t.Failed() {
				t.Logf("document:\n%s\noutput:\n%s", row.text, out.String())
			}
		})
	}
}
