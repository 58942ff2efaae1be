module guards

go 1.26

require (
	code.dny.dev/ssrf v0.3.0
	github.com/doyensec/safeurl v0.2.2
)
