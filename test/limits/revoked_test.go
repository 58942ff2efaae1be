//go:build linux

package limits

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"fetchd/internal/secure"
	"fetchd/test/wait"

	pb "fetchd/gen/fetchd/v1"
)

// tokens is a token file with an attacker and a bystander.
type tokens struct {
	file                string
	attacker, bystander string
	lines               [2]string
}

func newTokens(dir string) (*tokens, error) {
	t := &tokens{file: filepath.Join(dir, "tokens.yaml")}
	var err error
	for i, caller := range []struct {
		name  string
		token *string
	}{{"bystander", &t.bystander}, {"attacker", &t.attacker}} {
		if *caller.token, t.lines[i], err = secure.NewToken(caller.name); err != nil {
			return nil, err
		}
	}
	return t, t.write(2)
}

// write writes the file with its first n callers.
func (t *tokens) write(n int) error {
	var text string
	for _, line := range t.lines[:n] {
		text += line + "\n"
	}
	return os.WriteFile(t.file, []byte(text), 0o600)
}

// revoked opens FetchMany streams whose tasks hold request bodies, and revokes the token
// of their caller. The streams must end soon.
func revoked(tr *trial) (err error) {
	const streams, within = 4, 5 * time.Second
	tokens := tr.service.tokens
	if err := tokens.write(2); err != nil {
		return err
	}
	conn, err := dialFrom(attacker(0), tr.service.grpcAddr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(withToken(tr.ctx, tokens.attacker))
	var open sync.WaitGroup
	defer func() {
		cancel()
		open.Wait()
		conn.Close()
	}()
	tr.hostile.siege(rowTime) // nothing else may end the streams
	req := tr.put()
	req.TimeoutPolicy.HeaderTimeout = req.TimeoutPolicy.TotalTimeout
	ended := make(chan struct{}, streams)
	for range streams {
		open.Go(func() {
			fetchMany(ctx, pb.NewFetchServiceClient(conn), min(250, tr.fetches/streams), req, &tr.tally)
			ended <- struct{}{}
		})
	}
	wait.For(tr.ctx, 2*time.Second)
	if err := tokens.write(1); err != nil {
		return err
	}
	tr.service.Signal(syscall.SIGHUP)
	late := time.After(within)
	for n := range streams {
		select {
		case <-ended:
		case <-late:
			return fmt.Errorf("%d of %d streams are open %s after their caller's token was revoked", streams-n, streams, within)
		case <-tr.ctx.Done():
			return nil
		}
	}
	return nil
}
