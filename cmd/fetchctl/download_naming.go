package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"fetchd/internal/cli"
)

// naming gives every URL a file of its own. Names that differ in case alone
// count as the same: on some file systems they are.
type naming struct {
	dir   *folder
	sums  map[string]string
	begun map[string]string // name of a file that was begun → its URL

	mu    sync.Mutex
	taken map[string]string // name → URL
}

// newNaming gives names before anything is fetched: those that the user gave,
// then those of files that an earlier run began, then those of the URLs.
func newNaming(dir *folder, entries []*entry, sums map[string]string) (*naming, error) {
	begun, err := dir.begun()
	if err != nil {
		return nil, err
	}
	n := &naming{dir: dir, sums: sums, begun: begun, taken: make(map[string]string)}
	byURL := make(map[string]string)
	for name, u := range begun {
		if other, ok := byURL[u]; !ok || name < other {
			byURL[u] = name
		}
		n.taken[fold(name)] = u
	}
	given := make(map[string]string)
	for _, e := range entries {
		if !e.fixed {
			continue
		}
		if where, twice := given[fold(e.name)]; twice {
			return nil, cli.UsageError(e.where, fmt.Sprintf("the name %q was given before: %s", e.name, where))
		}
		given[fold(e.name)] = e.where
		if u, ok := n.taken[fold(e.name)]; ok && u != e.url {
			return nil, cli.UsageError(e.where, fmt.Sprintf("%s is of another URL: finish that one, or remove it", e.name+partEnding))
		}
		n.taken[fold(e.name)] = e.url
	}
	for _, e := range entries {
		if e.fixed {
			continue
		}
		if name, ok := byURL[e.url]; ok {
			e.name, e.fixed = name, true
			continue
		}
		e.name = n.take(urlName(e.url), e.url)
		_, e.fixed = sums[e.name] // then it is what the user expects
	}
	return n, nil
}

func fold(name string) string { return strings.ToLower(name) }

// take gives a URL the name, or one like it.
func (n *naming) take(name, url string) string {
	if u, ok := n.taken[fold(name)]; ok && u != url {
		name = ownName(name, url)
	}
	n.taken[fold(name)] = url
	return name
}

// settle gives a file the name that the origin wants for it, if that is free. A
// file of that name and of that size is taken for the same one, unless force
// replaces it anyway.
func (n *naming) settle(e *entry, wanted string, size int64, force bool) error {
	if e.fixed || wanted == "" || wanted == e.name {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name := wanted
	if u, ok := n.taken[fold(name)]; ok && u != e.url {
		name = ownName(wanted, e.url)
	}
	info, err := n.dir.lstat(name)
	if err == nil && !force && name == wanted && (!info.Mode().IsRegular() || info.Size() != size) {
		name = ownName(wanted, e.url)
		_, err = n.dir.lstat(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.OutputError(err)
	}
	e.name, e.fixed = name, true
	n.taken[fold(name)] = e.url
	return nil
}
