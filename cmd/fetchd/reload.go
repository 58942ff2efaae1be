package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"fetchd/server"
)

// lookEvery is how often the certificates are looked at.
const lookEvery = time.Minute

// live is a service that runs, and what of it can change meanwhile. Its methods
// are for one goroutine.
type live struct {
	program
	settings *settings // in force
	known    known
	server   *server.Server
	logger   *slog.Logger
	level    *slog.LevelVar
	broken   string // what was wrong with the certificates at the last look
}

// follow waits for the end: of ctx, or of a port that fails.
func (l *live) follow(ctx context.Context, failed <-chan error) error {
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case <-l.hangup:
			l.reload()
		case <-l.look:
			l.lookAtCertificates()
		}
	}
}

// reload puts in force what the settings and their files say now: all of it that
// can change, or nothing.
func (l *live) reload() {
	next, err := parse(l.args, io.Discard, io.Discard)
	if err != nil {
		l.refuse(err)
		return
	}
	changed, waiting := next.keepFrom(l.settings)
	id, err := next.readIdentity()
	if err == nil {
		err = l.server.SetLimits(next.limits(id)) // the last thing that can fail
	}
	if err != nil {
		l.refuse(err)
		return
	}
	changed = append(changed, id.changed(l.known.now.Load())...)
	next.setLevel(l.level)
	l.settings, l.broken = next, ""
	if len(waiting) > 0 {
		l.logger.Warn("settings that need a restart have changed: they stay as they were", slog.Any("settings", waiting))
	}
	l.force(id, changed)
}

// force puts an identity in force. Calls of callers that it does not allow end.
func (l *live) force(id *identity, changed []string) {
	l.known.now.Store(id)
	attrs := []any{slog.Any("changed", changed)}
	if ended := l.server.Reauthenticate(); ended > 0 {
		attrs = append(attrs, slog.Int("calls_ended", ended))
	}
	l.logger.Info("reloaded", attrs...)
}

// refuse says why everything stays as it was.
func (l *live) refuse(err error) {
	l.logger.Error("not reloaded: everything stays as it was", slog.String("error", fmt.Sprint(err)))
}

// keepFrom takes over from old what cannot change without a restart. It names what
// differs: what has changed, and what waits for a restart.
func (s *settings) keepFrom(old *settings) (changed, waiting []string) {
	changed = []string{}
	for i, o := range s.options {
		before := old.options[i].value
		switch {
		case reflect.DeepEqual(o.value.Interface(), before.Interface()):
		case o.live && !(o.name == "tls-allow-san" && slices.Contains(waiting, "tls-client-ca-file")):
			// Names that go together with the authorities wait for the restart with
			// them: until then everyone whom those have signed would be let in.
			changed = append(changed, o.name)
		default:
			waiting = append(waiting, o.name)
			o.value.Set(before)
		}
	}
	return changed, waiting
}

// lookAtCertificates takes those that have been replaced. What is wrong with new
// ones is said once: the files may be half written, and are looked at again.
func (l *live) lookAtCertificates() {
	old := l.known.now.Load()
	if old.certificates == nil {
		return
	}
	now, err := l.settings.readCertificates()
	if err != nil {
		if text := fmt.Sprint(err); text != l.broken {
			l.broken = text
			l.refuse(err)
		}
		return
	}
	l.broken = ""
	if changed := changedCertificates(now, old.certificates); len(changed) > 0 {
		l.force(old.with(now), changed)
	}
}
