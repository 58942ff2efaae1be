package markdown_test

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"fetchd/fetch/markdown"
)

// TestNeed measures the memory of pages that use much, and compares it with what Need returns.
func TestNeed(t *testing.T) {
	const (
		budget = 80 << 20
		line   = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. "
	)
	repeat := strings.Repeat
	for _, row := range []struct {
		name, html string
		refused    bool
	}{
		{"16 MiB of list items", repeat("<li>", 4<<20), true},
		{"16 MiB of text", "<p>" + repeat("x ", 8<<20), true},
		{"100,000 list items", repeat("<li>", 100_000), false},
		{"200,000 attributes", "<p " + numbered("a%d ", 200_000) + ">", false},
		{"many attributes in noscript", "<noscript><p " + numbered("a%d ", 200_000) + "></noscript>", false},
		{"50,000 menus", repeat("<nav>x</nav>", 50_000), false},
		{"menus without an element", repeat("<div class=menu><a href=/b>x</a></div>", 30_000), false},
		{"135 KB of nested elements", repeat("<div>", 27_000), true},
		{"chains of nested elements", repeat(repeat("<div>", 490)+"x"+repeat("</div>", 490), 95), false},
		{"formatting that is not closed", repeat("<b>", 400) + repeat("<p>x", 200), false},
		{"a text", "<p>" + repeat("x ", 950_000), false},
		{"signs", "<p>" + repeat("# 1. - + = > ", 150_000), false},
		{"lines", "<p>" + repeat("a\n", 950_000), false},
		{"tiny texts", repeat("x<br>", 49_000), false},
		{"tiny texts and elements", repeat("x<i></i>", 49_000), false},
		{"code", repeat("<code>x</code> ", 33_000), false},
		{"listings", repeat("<pre>x</pre>", 49_000), false},
		{"a listing", "<pre>" + repeat(line+"\n", 35_000), false},
		{"names", numbered("<div id=a%d class=b%[1]d>x</div>", 48_000), false},
		{"tags", numbered("<x%d>y", 400) + numbered("<y%d></y%[1]d>", 90_000), false},
		{"paragraphs in elements", repeat("<div>", 40) + repeat("<p>"+line, 35_000), false},
		{"paragraphs in many elements", repeat("<div>", 490) + repeat("<p>"+line, 35_000), false},
		{"a table", "<table>" + repeat("<tr>"+repeat("<td>x", 9), 5000), false},
		{"a table with text", "<table>" + repeat("<tr>"+repeat("<td>"+line, 9), 3500), false},
		{"nested tables", repeat("<table><tr><td>", 120) + repeat(line, 35_000), false},
		{"images", repeat("<img src=/a.jpg alt=b>", 98_000), false},
		{"images in figures", repeat("<figure>", 480) + repeat("<img data-src=/a.jpg alt=b>", 80_000), false},
		{"links", repeat("<a href=/x>"+line+"</a> ", 30_000), false},
		{"nested lists", repeat("<ul><li>", 100) + repeat("<li>x", 2000), false},
		{"quotations", repeat("<blockquote>", 100) + repeat("x<br>", 4000), false},
		{"lists that are closed elsewhere", repeat("<ul><li>", 12) + "<table><td>" + repeat("</ul>", 12) + repeat(line+"<br>", 9000), true},
		{"JSON-LD", `<script type="application/ld+json">{"articleBody":"` + repeat("lorem ", 450_000) + `"}</script>`, false},
		{"noscript", "<noscript>" + repeat("<p>"+line, 35_000) + "</noscript><script></script>", false},
		{"noscript in noscript", repeat("<noscript>", 40_000), false},
		{"a long noscript in noscript", repeat("<noscript>", 400_000), false},
		{"16 MiB of noscript", repeat("<noscript> </noscript>", 16<<20/22), true},
		{"lists in JSON-LD", `<script type="application/ld+json">{"articleBody":` + repeat("[", 4<<20-100) + "</script>", false},
		{"16 MiB of texts in JSON-LD", repeat(`<script type="application/ld+json">{`+repeat(`"articleBody":"",`, 8000)+"</script>", 125), true},
		{"a script", "<script>" + repeat("lorem ", 600_000) + "</script><p>a", false},
	} {
		var bytes int64
		var refused, err error
		own := peak(func() { bytes, refused = markdown.Need(row.html) })
		if refused != nil {
			bytes = budget
		}
		most := int64(budget)
		for range 3 { // some garbage may be counted
			most = min(most, peak(func() { _, err = markdown.From(row.html, "https://a.example/", markdown.Article) }))
			if most <= bytes {
				break
			}
		}
		t.Logf("%s: at most %d of %d KiB, Need %d", row.name, most>>10, bytes>>10, own>>10)
		if errors.Is(err, markdown.ErrLimit) != row.refused || err != nil && !row.refused {
			t.Errorf("%s: %v; refused: %t", row.name, err, row.refused)
		}
		if max(own, most) > bytes || bytes > budget {
			t.Errorf("%s: %d bytes were used, %d by Need, and it returned %d", row.name, most, own, bytes)
		}
	}
}

// peak returns how much memory is live at most during a call.
func peak(call func()) (most int64) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := int64(m.HeapAlloc)
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		runtime.ReadMemStats(&m)
		most = max(most, int64(m.HeapAlloc)-before)
		select {
		case <-done:
			return most
		case <-tick.C:
		}
	}
}
