package tools

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"fetchd/test/wait"
)

// TestCache keeps values within a number of bytes and a time.
func TestCache(t *testing.T) {
	t.Parallel()
	const each = 1000
	has := func(c *cache[int], keys string) bool {
		for _, key := range "abcd" {
			if element := c.entries[string(key)]; (element != nil) != strings.ContainsRune(keys, key) {
				return false
			}
		}
		return true
	}
	for _, row := range []struct {
		name string
		do   func(c *cache[int])
		want string
	}{
		{"within the limit", func(c *cache[int]) { c.put("a", 1, each); c.put("b", 2, each) }, "ab"},
		{"over the limit, the oldest goes", func(c *cache[int]) {
			c.put("a", 1, each)
			c.put("b", 2, each)
			c.put("c", 3, each)
			c.put("d", 4, each)
		}, "bcd"},
		{"one that was used stays", func(c *cache[int]) {
			c.put("a", 1, each)
			c.put("b", 2, each)
			c.put("c", 3, each)
			c.get("a")
			c.put("d", 4, each)
		}, "acd"},
		{"a large one replaces several", func(c *cache[int]) { c.put("a", 1, each); c.put("b", 2, each); c.put("c", 3, 3*each) }, "c"},
		{"one that is too large is not kept", func(c *cache[int]) { c.put("a", 1, each); c.put("b", 2, 10*each) }, "a"},
		{"one that is too large ends the earlier one", func(c *cache[int]) { c.put("a", 1, each); c.put("a", 2, 10*each) }, ""},
		{"one that is replaced counts once", func(c *cache[int]) {
			c.put("a", 1, each)
			c.put("a", 2, each)
			c.put("a", 3, each)
			c.put("b", 4, each)
			c.put("c", 5, each)
		}, "abc"},
		{"shortly before its end", func(c *cache[int]) { c.put("a", 1, each); wait.For(context.Background(), KeepFor-1); c.get("a") }, "a"},
		{"at its end, although it was used", func(c *cache[int]) {
			c.put("a", 1, each)
			wait.For(context.Background(), KeepFor-1)
			c.get("a")
			wait.For(context.Background(), 1)
			c.get("b")
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCache[int](3*each + 3*(entryBytes+1))
				row.do(c)
				want := int64(0)
				for element := c.order.Front(); element != nil; element = element.Next() {
					want += c.entryLocked(element).bytes
				}
				if !has(c, row.want) || len(c.entries) != c.order.Len() || c.bytes != want || c.bytes > c.maxBytes {
					t.Errorf("%v, %d bytes; want %s, %d bytes", c.entries, c.bytes, row.want, want)
				}
			})
		})
	}
}
