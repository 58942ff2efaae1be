package origin

import (
	"fmt"
	"strings"
)

const grammarHead = `/s/KEY/STEP/STEP/...   request n for KEY gets STEP n; the last repeats
/cycle/KEY/STEP/STEP/...        the same, but the first STEP follows the last, and each
                                script counts alone: for examples that are run again
/r/KEY/STATUS/N/STEP/...        N redirects, then /s/KEY/STEP/...
/loop/KEY/STATUS                redirects to itself
/loop2/KEY/STATUS               redirects between two URLs
/cross/KEY/STATUS/TARGET/STEP/...
                                redirects to /s/KEY/STEP/... on the listener TARGET,
                                which may be NAME@HOST to name its host otherwise
GET /                           this page
GET /_log?key=KEY               the log in JSON, of KEY or of all; DELETE /_log clears it
GET /_connections               connections accepted, by listener, in JSON
GET /_ca.pem /_client.pem       the authority; the client certificate and key for mtls

KEY is any text, chosen by the client. Methods and queries do not matter. The
helpers are logged under KEY but take no step from it. STATUS may carry
parameters there too.

STEP is NAME or NAME:PARAM=VALUE,PARAM=VALUE. Values are percent-decoded once:
write "," as %2C, "/" as %2F, "?" as %3F, "%" as %25. A PARAM that adds a field
may be given more than once, also with a number: header1=, header2=.
A URL that is not in the grammar gets 400, a fault that the protocol cannot have
501, both with a field Origin-Error.
`

// Grammar returns the URL grammar: every step and every parameter.
func Grammar() string {
	var b strings.Builder
	b.WriteString(grammarHead)
	for _, k := range stepKinds {
		fmt.Fprintf(&b, "\n%s\n    %s\n", k.name, k.doc)
		if k.name == "close-idle" {
			b.WriteString("    parameters as for STATUS\n")
			continue
		}
		for _, p := range k.params {
			fmt.Fprintf(&b, "    %-50s %s\n", p.usage(), p.doc)
		}
	}
	return b.String()
}

func (p param) usage() string {
	if p.syntax == "" {
		return p.name
	}
	return p.name + "=" + p.syntax
}

// Index returns the listeners with their addresses, and the grammar: what
// GET / answers.
func (o *Origin) Index() string {
	var b strings.Builder
	b.WriteString("An HTTP origin that commits any fault on request.\n\nListeners\n")
	for _, k := range listenerKinds() {
		fmt.Fprintf(&b, "    %-16s %-34s %s\n", k.name, o.URL(k.name, ""), k.doc)
	}
	fmt.Fprintf(&b, "    %-16s %-34s %s\n", refusedName, o.URL(refusedName, ""), "nothing listens there")
	b.WriteString("\nGrammar\n\n")
	b.WriteString(Grammar())
	return b.String()
}
