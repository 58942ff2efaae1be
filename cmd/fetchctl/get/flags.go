package get

import (
	"fmt"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/types/known/durationpb"

	"fetchd/cmd/fetchctl/service"
	pb "fetchd/gen/fetchd/v1"
	"fetchd/internal/cli"
)

// Command is the command "fetchctl get".
type Command struct {
	URL string `arg:"" optional:"" help:"Absolute http or https URL."`

	Request string    `short:"X" group:"Request:" placeholder:"METHOD" help:"GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET, or POST with --data."`
	Data    bodyParts `short:"d" group:"Request:" placeholder:"DATA|@FILE|@-" help:"Request body: the text itself, a file, or standard input, byte for byte, at most 1 MiB. If repeated, the parts are joined with &. Unless -H says otherwise, its Content-Type is that of an HTML form."`
	service.Sent
	UserAgent *string `short:"A" group:"Request:" placeholder:"TEXT" help:"User-Agent of every request."`
	Cookies   bool    `group:"Request:" help:"Keep cookies across the redirects and attempts of this fetch. Default: cookies are dropped."`

	service.Policies
	Timeout *time.Duration `group:"Retries:" placeholder:"DURATION" help:"Time limit for the whole fetch, including waits, such as 90s. Default: 1m; with --profile download the service's maximum."`

	MaxSize  *cli.ByteSize `group:"Body:" placeholder:"SIZE" help:"Maximum size of the body, in bytes or with a unit: 500kB, 16MiB. Default: 16MiB, with --profile download the service's maximum."`
	Markdown textFlag      `group:"Body:" help:"Write the text of the page as Markdown, without menus. With --markdown=article only its main text. Other text stays as it is."`
	SHA256   string        `name:"sha256" group:"Body:" placeholder:"HEX" help:"Fail unless the body has this SHA-256."`

	Store      string `group:"Store:" placeholder:"NAME" help:"Let the service write the body to this store. Standard output stays empty."`
	Key        string `group:"Store:" placeholder:"KEY" help:"Key of the object in the store, such as 2026/report.pdf. An object with that key is replaced. Default: named by its digest, which a store at S3 allows only with --sha256."`
	StoresFile string `name:"stores-file" group:"Store:" placeholder:"FILE" help:"Stores of the service inside fetchctl, as fetchd reads them. Not with --server, whose operator has configured the stores."`

	Output  string   `short:"o" group:"Output:" placeholder:"FILE" help:"Write the body to FILE, completely or not at all. Default: standard output."`
	Include bool     `short:"i" group:"Output:" help:"Write the status and the headers before the body."`
	JSON    jsonFlag `name:"json" group:"Output:" help:"Print every event as a line of JSON instead of text. Followed by JSON or @FILE, it sends that instead, as curl does, with the Content-Type and Accept of JSON."`
	Quiet   bool     `short:"q" group:"Output:" xor:"told" help:"Print nothing about the fetch, except with --verbose. Usage and service errors are still printed."`
	Verbose bool     `short:"v" group:"Output:" help:"Print the policy, redirects, headers and timings as well."`

	WARC   *string `name:"warc" group:"Record:" xor:"records" placeholder:"FILE" help:"Append every request and response of the fetch to a WARC file. It is compressed if its name ends in .gz. Not with --server."`
	Record string  `group:"Record:" xor:"records" placeholder:"NAME" help:"Let the service record every request and response in this store for WARC files. With --server or --stores-file."`

	curlFlags
	service.Origins
	EgressRoute string `group:"Service:" placeholder:"NAME" help:"Let the service reach the origins by this route, which your policy must permit. With --server."`
	service.Connection
}

// curlFlags are flags of curl that get has for those who know curl. More flags of get have the
// letters of curl: -X, -H, -d, -o, -i and -v.
type curlFlags struct {
	Head          bool      `short:"I" group:"Curl:" help:"Send HEAD, and write the status and the headers."`
	Get           bool      `short:"G" group:"Curl:" help:"Send GET, and add the data to the query of the URL."`
	DataRaw       bodyParts `group:"Curl:" placeholder:"DATA" help:"The same as --data, but @ has no meaning."`
	DataBinary    bodyParts `group:"Curl:" placeholder:"DATA|@FILE|@-" help:"The same as --data."`
	DataURLEncode bodyParts `name:"data-urlencode" group:"Curl:" placeholder:"[NAME][=]DATA" help:"The same as --data, with DATA percent-encoded. NAME@FILE reads a file."`
	Form          bodyParts `short:"F" group:"Curl:" placeholder:"NAME=VALUE" help:"Send multipart/form-data. VALUE may be @FILE, to upload it, or <FILE, followed by ;type= and ;filename=."`
	UploadFile    string    `short:"T" group:"Curl:" placeholder:"FILE" help:"Send FILE, or - for standard input, with PUT. A URL that ends in / gets the name of the file."`
	Range         string    `group:"Curl:" placeholder:"FIRST-LAST" help:"Ask for this part of the body, such as 0-99."`
	Referer       *string   `short:"e" group:"Curl:" placeholder:"URL" help:"Referer of every request."`
	Cookie        []string  `short:"b" sep:"none" group:"Curl:" placeholder:"NAME=VALUE" help:"Send these cookies, and keep those of the origin as --cookies does."`

	ConnectTimeout *seconds `group:"Curl:" placeholder:"SECONDS" help:"Time limit for the name lookup, TCP and TLS of a connection. Default: 10."`
	RetryDelay     *seconds `group:"Curl:" placeholder:"SECONDS" help:"Wait so long before every retry, unless Retry-After asks for more."`

	Proto string `group:"Curl:" placeholder:"=https" help:"Accept https alone, for redirects too."`

	Fail         bool `short:"f" hidden:""` // it is so always, as are the next two
	Location     bool `short:"L" hidden:""`
	Compressed   bool `hidden:""`
	FailWithBody bool `group:"Curl:" help:"Write the body of a failed response, up to 64 KiB, as if it had not failed: to a file only with a status of 400 or more. The exit code is still that of the failure."`

	RemoteName bool    `short:"O" group:"Curl:" help:"Write the body to a file in the current directory, with the name that the origin gives or the last segment of the URL. An existing file is not replaced."`
	WriteOut   *string `short:"w" group:"Curl:" placeholder:"FORMAT|@FILE" help:"Write this to standard output when the fetch has ended, with variables such as %{http_code} and %header{etag}."`
	Silent     bool    `short:"s" group:"Curl:" xor:"told" help:"The same as --quiet."`
	ShowError  bool    `short:"S" group:"Curl:" help:"With --silent or --quiet, print why a fetch failed."`
}

// textFlag is the value of --markdown: none, or how much of a page its text has.
type textFlag struct{ policy *pb.TextPolicy }

// IsBool implements kong.BoolMapperValue: a value follows an equals sign.
func (*textFlag) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (f *textFlag) Decode(ctx *kong.DecodeContext) error {
	content := pb.TextContent_TEXT_CONTENT_MARKED
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		switch value := ctx.Scan.Pop().String(); value {
		case "marked":
		case "article":
			content = pb.TextContent_TEXT_CONTENT_ARTICLE
		default:
			return fmt.Errorf("%.20q is not known: give --markdown, or --markdown=article for the main text alone", value)
		}
	}
	f.policy = &pb.TextPolicy{Content: content}
	return nil
}

// seconds is a time in seconds, as curl has it, or with a unit.
type seconds time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *seconds) UnmarshalText(text []byte) error {
	const most = 1e9
	if n, err := strconv.ParseFloat(string(text), 64); err == nil && n > 0 && n < most {
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := cli.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%.20q is not a time: give seconds, more than 0", text)
	}
	*s = seconds(d)
	return nil
}

// proto returns the time for a request, or nil.
func (s *seconds) proto() *durationpb.Duration {
	if s == nil {
		return nil
	}
	return durationpb.New(time.Duration(*s))
}

// toFile reports whether the body does not go to standard output.
func (c *Command) toFile() bool {
	return c.Output != "" && c.Output != "-" || c.Store != "" || c.RemoteName
}
