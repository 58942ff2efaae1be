package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// buildAll is the command with which most documents begin.
const buildAll = "go build -o bin/ ./cmd/..."

// tree is what the documents share: a copy of the tree, and its programs.
type tree struct {
	root            string
	clone, programs string
}

// copy makes a repository from the sources, with one commit.
func (t *tree) copy(ctx context.Context, sources []string) error {
	cp := exec.CommandContext(ctx, "xargs", "-0", "cp", "-P", "--parents", "-t", t.clone)
	cp.Dir = t.root
	cp.Stdin = strings.NewReader(strings.Join(sources, "\x00"))
	if err := os.Mkdir(t.clone, 0o700); err != nil {
		return err
	}
	if said, err := cp.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the tree: %w: %s", err, said)
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=docrun", "-c", "user.email=docrun@localhost", "commit", "-q", "-m", "a copy"},
		{"config", "status.showUntrackedFiles", "no"}, // the go command writes into programs whether the tree has changed
	} {
		if _, err := git(ctx, t.clone, args...); err != nil {
			return err
		}
	}
	return nil
}

// build runs buildAll where a document would run it.
func (t *tree) build(ctx context.Context) error {
	cmd := unshare(ctx, "--mount", "bash", "-euc", `mount --bind "$2" "$1"; cd "$1"; `+buildAll+`; mv bin "$3"`, "bash", t.root, t.clone, t.programs)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", buildAll, err, said)
	}
	return nil
}

// buildsAll reports whether the document runs buildAll.
func (d *document) buildsAll() bool {
	for i := range d.blocks {
		if strings.Contains(d.blocks[i].text, buildAll) {
			return true
		}
	}
	return false
}

// copy copies the tree for a document, with the programs if it builds all of them: the go command finds them up to
// date, and does not link them again for each document.
func (d *document) copy(ctx context.Context, t *tree, to string) error {
	if said, err := exec.CommandContext(ctx, "cp", "-a", t.clone, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the tree: %w: %s", err, said)
	}
	if !d.buildsAll() {
		return nil
	}
	if said, err := exec.CommandContext(ctx, "cp", "-a", t.programs, filepath.Join(to, "bin")).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the programs: %w: %s", err, said)
	}
	return nil
}
