package links

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/transform"

	"fetchd/internal/sniff"
)

const (
	// maxSheet limits a style sheet, which is in memory while it is read.
	maxSheet = 4 << 20
	// perCSSToken is the work for a token of a style sheet, in addition to its bytes.
	perCSSToken = 8
)

// readSheet reads a style sheet.
func (s *search) readSheet(r io.Reader) error {
	bounded := &io.LimitedReader{R: r, N: min(maxSheet, s.config.Limits.Bytes) + 1}
	text, err := io.ReadAll(bounded)
	if err != nil {
		return err
	}
	if bounded.N <= 0 {
		s.page.Cut = CutSheet
	}
	e, name, known := sniff.Declared(s.config.ContentType, text[:min(len(text), len("\ufeff"))])
	if m := charsetRule.FindSubmatch(text[:min(len(text), sniff.HeadBytes)]); !known && m != nil {
		e, name = charset.Lookup(string(m[1]))
		known = e != nil && !strings.HasPrefix(name, "utf-16") // its rule could not be read
	}
	if known && name != "utf-8" {
		if text, err = io.ReadAll(io.LimitReader(transform.NewReader(strings.NewReader(string(text)), e.NewDecoder()), maxSheet)); err != nil {
			return err
		}
	}
	s.flush()
	s.css(text)
	return nil
}

// charsetRule begins a style sheet that says its charset: CSS Syntax Level 3, determine the fallback encoding.
var charsetRule = regexp.MustCompile(`^@charset "([^"]+)";`)

// css adds what a style sheet, a style element or a style attribute needs: CSS Syntax Level 3. A URL of url() is an
// asset, unless it is imported or names a namespace, and so is a string of image-set().
func (s *search) css(text []byte) {
	lexer := css.NewLexer(parse.NewInputBytes(text))
	var rule string             // the at-rule until its first block or semicolon
	var parentheses, images int // that are open, and those up to image-set()
	for {
		kind, token := lexer.Next()
		if kind == css.ErrorToken || !s.spend(perCSSToken+len(token)) {
			return
		}
		switch kind {
		case css.AtKeywordToken:
			rule = strings.ToLower(unescape(token))
		case css.SemicolonToken, css.LeftBraceToken, css.RightBraceToken:
			rule, parentheses, images = "", 0, 0
		case css.LeftParenthesisToken:
			parentheses++
		case css.RightParenthesisToken:
			if parentheses == images {
				images = 0
			}
			parentheses = max(0, parentheses-1)
		case css.FunctionToken:
			parentheses++
			if name := strings.ToLower(unescape(token)); images == 0 && (name == "image-set(" || name == "-webkit-image-set(") {
				images = parentheses
			}
		case css.StringToken:
			if rule == "@import" || images > 0 && parentheses == images {
				s.need(unquote(token), rule == "@import")
				rule = ""
			}
		case css.URLToken:
			if rule != "@namespace" {
				s.need(urlOf(token), rule == "@import")
			}
			rule = ""
		default:
		}
	}
}

// urlOf returns the value of a url().
func urlOf(token []byte) string {
	text := string(token[strings.IndexByte(string(token), '(')+1:])
	text = strings.Trim(strings.TrimSuffix(text, ")"), " \t\r\n\f")
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		return unquote([]byte(text))
	}
	return unescape([]byte(text))
}

// unquote returns the value of a string, which the end of the style sheet may have ended.
func unquote(token []byte) string {
	quote, text := token[0], token[1:]
	if n := len(text); n > 0 && text[n-1] == quote {
		text = text[:n-1]
	}
	return unescape(text)
}

// escape is an escape of a token: CSS Syntax Level 3, consume an escaped code point.
var escape = regexp.MustCompile(`(?s)\\(?:[0-9a-fA-F]{1,6}(?:\r\n|[ \t\r\n\f])?|\r\n|.|$)`)

// unescape replaces the escapes of a token. An escaped newline in a string is nothing.
func unescape(token []byte) string {
	if bytes.IndexByte(token, '\\') < 0 {
		return string(token)
	}
	return string(escape.ReplaceAllFunc(token, func(found []byte) []byte {
		found = found[1:]
		code, err := strconv.ParseInt(string(bytes.TrimRight(found, " \t\r\n\f")), 16, 32)
		switch {
		case err != nil:
			return bytes.TrimLeft(found, "\r\n\f")
		case code == 0 || !utf8.ValidRune(rune(code)):
			code = utf8.RuneError
		}
		return utf8.AppendRune(nil, rune(code))
	}))
}
