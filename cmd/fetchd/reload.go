package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"fetchd/fetch"
	"fetchd/internal/policies"
	"fetchd/internal/secure"
	"fetchd/internal/tlswatch"
	"fetchd/server"
	"fetchd/server/observe"
	"fetchd/stores"
)

// lookEvery is how often the certificates and the files for origins are checked.
const lookEvery = time.Minute

// live is a running service and the settings that can change. Its methods are for one
// goroutine.
type live struct {
	program
	settings *settings // current
	known    secure.Known
	egress   []tlswatch.Certificate // authorities, since the start
	files
	retired  []*retired
	longest  time.Duration // of --max-total-timeout, since the start
	has      capacity      // at the start
	listens  int           // number of ports
	observer *observe.Observer
	server   *server.Server
	logger   *slog.Logger
	level    *slog.LevelVar
	broken   string            // the error of the last check of the files
	keys     map[string]string // what watchKeys found last, by provider

	certificates *tlswatch.Watch
}

// files is what the settings files configure that is replaced while the service runs.
type files struct {
	origins       *origins
	intermediates *fetch.Intermediates
	policies      *policies.Set
	stores        *stores.Set
}

// readFiles reads the settings files. What is as it was before is kept.
func (s *settings) readFiles(before *files) (now files, err error) {
	if now.origins, err = s.readOrigins(before.origins); err != nil {
		return now, err
	}
	if now.intermediates, err = s.readIntermediates(before.intermediates); err != nil {
		return now, err
	}
	if now.policies, err = s.readPolicies(before.policies); err != nil {
		return now, err
	}
	now.stores, err = s.readStores(before.stores) // the last thing that can fail, because it opens them
	return now, err
}

// setFiles applies what the settings files configure. It returns the settings that have changed.
func (l *live) setFiles(now *files) []string {
	return slices.Concat(l.setOrigins(now.origins), l.setIntermediates(now.intermediates), l.setPolicies(now.policies), l.setStores(now.stores))
}

// retired are stores that were replaced. They stay open until due, because fetches that began before
// may still begin an upload.
type retired struct {
	stores *stores.Set
	due    time.Time
	closed chan struct{} // closed when its archives are; nil before they are being closed
}

// closeArchives begins to close the archives, whose uploads may take long, and reports whether they
// are closed.
func (r *retired) closeArchives() bool {
	if r.closed == nil {
		r.closed = make(chan struct{})
		go func() {
			defer close(r.closed)
			_ = r.stores.CloseArchives(context.Background()) // they log; closeStores ends the wait
		}()
	}
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// follow waits until ctx ends or a port fails.
func (l *live) follow(ctx context.Context, failed <-chan error) error {
	for {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		case <-l.hangup:
			l.reload()
			l.watchKeys(time.Now())
		case <-l.look:
			l.lookAtFiles()
			l.watchKeys(time.Now())
			l.closeRetired()
		}
	}
}

// reload applies all changes in the settings and their files that need no restart. On an error
// it applies nothing.
func (l *live) reload() {
	next, err := parse(l.args, io.Discard, io.Discard)
	if err != nil {
		l.refuse(err)
		return
	}
	changed, waiting := next.keepFrom(l.settings)
	id, err := next.identityFiles().Read()
	now := next.capacity(l.has.files, l.has.budget)
	var found files
	if err == nil {
		found, err = next.readFiles(&l.files)
	}
	if err == nil {
		if err = l.server.SetLimits(next.limits(id, &now)); err != nil { // the last thing that can fail
			found.stores.Without(l.stores).Drop()
		}
	}
	if err != nil {
		l.refuse(err)
		return
	}
	changed = append(changed, id.Changed(l.known.Load())...)
	changed = append(changed, l.setFiles(&found)...)
	next.setLevel(l.level)
	l.settings, l.broken, l.longest = next, "", max(l.longest, next.MaxTotalTimeout)
	if len(waiting) > 0 {
		l.logger.Warn("settings that need a restart have changed: they stay as they were", slog.Any("settings", waiting))
	}
	for _, e := range next.exceeding(&now, l.listens) {
		l.logger.Warn("a setting needs more files than the process may have open", slog.String("setting", e[0]), slog.String("remedy", e[1]))
	}
	l.force(id, changed)
}

// force replaces the identity. Calls of callers that it does not allow end.
func (l *live) force(id *secure.Identity, changed []string) {
	l.setCallers(id.Callers.Names())
	l.known.Store(id)
	l.watchCertificates()
	attrs := []any{slog.Any("changed", changed)}
	if ended := l.server.Reauthenticate(); ended > 0 {
		attrs = append(attrs, slog.Int("calls_ended", ended))
	}
	l.logger.Info("reloaded", attrs...)
}

// watchCertificates watches the certificates in use. It logs what is wrong with them.
func (l *live) watchCertificates() {
	l.certificates.Set(slices.Concat(tlswatch.Of(l.known.Load().Certificates), l.egress, l.origins.watched))
}

// refuse logs why nothing was changed.
func (l *live) refuse(err error) {
	l.logger.Error("not reloaded: everything stays as it was", slog.String("error", fmt.Sprint(err)))
}

// keepFrom copies from old what cannot change without a restart. It returns the names of the
// changed settings, and of those that wait for a restart.
func (s *settings) keepFrom(old *settings) (changed, waiting []string) {
	changed = []string{}
	for i, o := range s.options {
		before := old.options[i].value
		switch {
		case reflect.DeepEqual(o.value.Interface(), before.Interface()):
		case o.live && !(o.name == "tls-allow-san" && slices.Contains(waiting, "tls-client-ca-file")):
			// If the authorities wait for a restart, the names wait with them. Otherwise
			// callers of the old authorities could match the new names.
			changed = append(changed, o.name)
		default:
			waiting = append(waiting, o.name)
			o.value.Set(before)
		}
	}
	return changed, waiting
}

// setOrigins applies what --origins-file configures. It returns the setting if it changed.
func (l *live) setOrigins(now *origins) []string {
	if now.same(l.origins) {
		return nil
	}
	if err := l.server.SetOrigins(now.profiles, now.providers); err != nil {
		l.refuse(err) // readOrigins has checked what can be wrong
		return nil
	}
	l.origins = now
	return []string{"origins-file"}
}

// setIntermediates applies --egress-intermediates. It returns the setting if it changed.
func (l *live) setIntermediates(now *fetch.Intermediates) []string {
	if now == l.intermediates {
		return nil
	}
	l.server.SetIntermediates(now)
	l.intermediates = now
	return []string{"egress-intermediates"}
}

// setPolicies applies what --policies-file configures. It returns the setting if it changed.
func (l *live) setPolicies(now *policies.Set) []string {
	if now.Same(l.policies) {
		return nil
	}
	l.server.SetPolicies(now)
	l.policies = now
	return []string{"policies-file"}
}

// readStores reads --stores-file. Stores that are as they were before stay open.
func (s *settings) readStores(before *stores.Set) (*stores.Set, error) {
	if s.StoresFile == "" {
		return before.Without(before), nil
	}
	found, err := stores.ReadFile(s.StoresFile, before)
	if err != nil {
		return nil, fmt.Errorf("--stores-file: %w", err)
	}
	return found, nil
}

// setStores applies what --stores-file configures. It returns the setting if it changed.
func (l *live) setStores(now *stores.Set) []string {
	if now.Same(l.stores) {
		return nil
	}
	l.server.SetStores(now)
	// A task of FetchMany may wait for its turn as long as a fetch takes. One that waits longer may
	// find its store closed, and is retryable.
	l.retired = append(l.retired, &retired{stores: l.stores.Without(now), due: time.Now().Add(2 * l.longest)})
	l.stores = now
	return []string{"stores-file"}
}

// closeRetired closes the stores that are due and have no upload in flight.
func (l *live) closeRetired() {
	noWait, cancel := context.WithCancel(context.Background())
	cancel()
	l.retired = slices.DeleteFunc(l.retired, func(r *retired) bool {
		return time.Now().After(r.due) && r.closeArchives() && r.stores.Close(noWait) == nil
	})
}

// closeStores closes all stores. drain limits the wait for uploads of WARC files, which can be
// uploaded later, and abort the wait for uploads of bodies that are being aborted.
func (l *live) closeStores(drain, abort context.Context) error {
	sets := []*stores.Set{l.stores}
	for _, r := range l.retired {
		sets = append(sets, r.stores)
	}
	var errs []error
	for _, s := range sets {
		if err := s.CloseArchives(drain); err != nil {
			l.logger.Warn("not every WARC file is whole and uploaded", slog.Any("error", err))
		}
		errs = append(errs, s.Close(abort))
	}
	return errors.Join(errs...)
}

// lookAtFiles applies certificates, an --origins-file and a --stores-file that were replaced. An error is
// logged once: the files may be half written, and are checked again.
func (l *live) lookAtFiles() {
	old := l.known.Load()
	certificates, err := l.settings.identityFiles().ReadCertificates()
	var found files
	if err == nil {
		found, err = l.settings.readFiles(&l.files)
	}
	if err != nil {
		if text := fmt.Sprint(err); text != l.broken {
			l.broken = text
			l.refuse(err)
		}
		return
	}
	l.broken = ""
	changed := old.With(certificates).Changed(old)
	if changed = append(changed, l.setFiles(&found)...); len(changed) > 0 {
		l.force(old.With(certificates), changed)
	}
}
