// Command docrun runs the shell blocks of the repository's documents as a reader would in a
// fresh clone, and compares their output with the documents. CONTRIBUTING.md has the rules.
// Each document gets a copy of the tree in place of the tree, one shell, and a network with
// only loopback.
//
//	go run ./test/docrun [FILE...]
//
// FILE is a document, relative to the root of the tree. Without FILE it runs all documents.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

//go:embed session.sh
var session string

// limit is how long one document may take.
const limit = 10 * time.Minute

// atOnce is how many documents run at the same time. For half of its time a document waits.
const atOnce = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Stdout, ".", os.Args[1:], os.Getenv("CI") == "true")
	if err != nil {
		fmt.Fprintf(os.Stderr, "docrun: %v\n", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs the documents of the tree at root, or only the named ones. It reports whether all
// of them are correct. If strict is set, a block whose needs are missing is not correct. An
// error means that they could not be run.
func run(ctx context.Context, out io.Writer, root string, only []string, strict bool) (bool, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return false, err
	}
	sources, err := sourcesOf(ctx, root)
	if err != nil {
		return false, err
	}
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		return false, err
	}
	g := readGate(string(script))
	var skipped []string
	var documents []*document
	for _, file := range sources {
		if !isDocument(file, only) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return false, err
		}
		d := parse(file, string(text))
		skipped = append(skipped, d.skipBlocks(g, strict)...)
		documents = append(documents, d)
	}
	if len(documents) == 0 {
		return false, fmt.Errorf("there is no document %s", strings.Join(only, " or "))
	}
	ok, err := runAll(ctx, out, root, sources, documents)
	if err != nil {
		return false, err
	}
	if len(skipped) > 0 {
		say(out, "not run:\n  %s\n", strings.Join(skipped, "\n  "))
	}
	return ok, nil
}

// runAll runs the documents, some of them at the same time. It reports whether all of them are correct.
func runAll(ctx context.Context, out io.Writer, root string, sources []string, documents []*document) (bool, error) {
	work, err := os.MkdirTemp("", "docrun-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary folder
	t := &tree{root: root, clone: filepath.Join(work, "clone"), programs: filepath.Join(work, "bin")}
	if err := t.copy(ctx, sources); err != nil {
		return false, err
	}
	if slices.ContainsFunc(documents, (*document).buildsAll) {
		if err := t.build(ctx); err != nil {
			return false, err
		}
	}
	var mu sync.Mutex // guards ok and out
	ok := true
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, d := range documents {
		group.Go(func() error {
			var said strings.Builder
			correct, err := d.run(ctx, &said, t)
			mu.Lock()
			defer mu.Unlock()
			say(out, "%s", said.String())
			ok = ok && correct
			if err != nil {
				return fmt.Errorf("%s: %w", d.file, err)
			}
			return nil
		})
	}
	err = group.Wait()
	return ok, err
}

// sourcesOf lists the tracked files and the new files that are not ignored.
func sourcesOf(ctx context.Context, root string) ([]string, error) {
	all, err := git(ctx, root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(strings.TrimRight(all, "\x00"), "\x00"), func(file string) bool {
		info, err := os.Lstat(filepath.Join(root, file))
		return err != nil || info.IsDir() // deleted, or another repository
	}), nil
}

// isDocument reports whether the file is a document to run.
func isDocument(file string, only []string) bool {
	return filepath.Ext(file) == ".md" && !slices.Contains(strings.Split(file, "/"), "testdata") &&
		(len(only) == 0 || slices.Contains(only, file))
}

// say prints to out. It ignores errors.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

func withOutput(blocks []block) int {
	n := 0
	for i := range blocks {
		if blocks[i].hasWant {
			n++
		}
	}
	return n
}

// skipBlocks removes the blocks that are not run, and returns the reasons. If strict is set,
// missing needs are faults.
func (d *document) skipBlocks(g *gate, strict bool) (skipped []string) {
	d.blocks = slices.DeleteFunc(d.blocks, func(b block) bool {
		if why := b.skipReason(g); why != "" {
			skipped = append(skipped, fmt.Sprintf("%s: %s", &b, why))
			return true
		}
		missing := b.missing()
		if missing == "" {
			return false
		}
		missing = fmt.Sprintf("%s: %s", &b, missing)
		if strict {
			d.faults = append(d.faults, missing)
		} else {
			skipped = append(skipped, missing)
		}
		return true
	})
	return skipped
}

// skipReason returns why the block is not run, or "" if it is run.
func (b *block) skipReason(g *gate) string {
	if b.notRun != "" {
		return b.notRun
	}
	if step := g.step(b.commands()); step != "" {
		return "the step " + step + " runs it word for word"
	}
	return ""
}

// missing names a program or file that the block needs and that is not there, or returns "".
func (b *block) missing() string {
	for _, name := range b.needs {
		if strings.HasPrefix(name, "/") {
			if _, err := os.Stat(name); err != nil {
				return name + " does not exist"
			}
		} else if _, err := exec.LookPath(name); err != nil {
			return name + " is not on the PATH"
		}
	}
	return ""
}

// run runs the blocks of the document and reports whether they are correct.
func (d *document) run(ctx context.Context, out io.Writer, t *tree) (bool, error) {
	for _, fault := range d.faults {
		say(out, "%s\n", fault)
	}
	if len(d.blocks) == 0 {
		return len(d.faults) == 0, nil
	}
	begin := time.Now()
	held, err := d.session(ctx, out, t)
	if err != nil {
		return false, err
	}
	say(out, "%s: %d blocks, %d with their output, %.0f s\n", d.file, len(d.blocks), withOutput(d.blocks), time.Since(begin).Seconds())
	return held && len(d.faults) == 0, nil
}

// session runs the blocks in one shell in a copy of the tree.
func (d *document) session(ctx context.Context, out io.Writer, t *tree) (bool, error) {
	work, err := os.MkdirTemp("", "docrun-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary folder
	clone, folder := filepath.Join(work, "clone"), filepath.Join(work, "blocks")
	if err := d.copy(ctx, t, clone); err != nil {
		return false, err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return false, err
	}
	for name, text := range d.files {
		name = filepath.Join(clone, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return false, err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return false, err
		}
	}
	for i := range d.blocks {
		if err := d.blocks[i].write(filepath.Join(folder, strconv.Itoa(i))); err != nil {
			return false, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := unshare(ctx, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", session, "session.sh", t.root, clone, folder)
	said, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return false, err
	}
	for i := range d.blocks {
		b, name := &d.blocks[i], filepath.Join(folder, strconv.Itoa(i))
		if fault := b.fault(name); fault != "" {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				fault += fmt.Sprintf(" (ended after %s)", limit)
			}
			say(out, "FAILED %s: %s\n%s", b, fault, indented(b.text, "  $ "))
			say(out, "%s%s", indented(read(name+".out"), "  | "), indented(string(said), "  "))
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, said)
	}
	return true, nil
}

// write writes the files that the session needs for the block.
func (b *block) write(name string) error {
	files := map[string]string{".sh": b.text}
	if b.exit != 0 {
		files[".exit"] = strconv.Itoa(b.exit)
	}
	if b.hasWant && b.once == "" {
		files[".twice"] = ""
	}
	for extension, text := range files {
		if err := os.WriteFile(name+extension, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fault describes what is wrong with a block that was run, or returns "".
func (b *block) fault(name string) string {
	switch status := strings.TrimSpace(read(name + ".status")); {
	case status == "":
		return "it did not end"
	case status != strconv.Itoa(b.exit):
		return fmt.Sprintf("exit status %s, want %d", status, b.exit)
	case b.hasWant && !shows(b.want, read(name+".out")):
		return "it prints what is below, and the document shows\n" + indented(b.want, "  > ")
	case b.hasWant && b.once == "" && !shows(b.want, read(name+".again")):
		return "a second run prints something else:\n" + indented(read(name+".again"), "  > ")
	}
	return ""
}

// read returns the content of a file, or "" if there is no such file.
func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprint(err)
	}
	return string(text)
}

// indented returns the last 60 lines of text, each with a prefix.
func indented(text, prefix string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if text == "" {
		return ""
	}
	return prefix + strings.Join(lines[max(0, len(lines)-60):], "\n"+prefix) + "\n"
}

// unshare returns a command in its own namespaces.
func unshare(ctx context.Context, args ...string) *exec.Cmd {
	if os.Geteuid() != 0 {
		args = append([]string{"--map-root-user"}, args...)
	}
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-ldflags=-w") // without debug information they link faster
	return cmd
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...)
	out, err := cmd.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, ended.Stderr)
	}
	return string(out), err
}
