package conns

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"slices"
	"time"
)

// maxOffered limits the certificates that one handshake takes from [Intermediates].
const maxOffered = 16

// Intermediates are certificates of intermediate authorities, for origins that do not send theirs. They
// are not trusted: an authority that is trusted must have signed them, directly or not.
type Intermediates struct {
	bySubject map[string][][]byte // DER, because a parsed certificate takes several times as much memory
	digest    [sha256.Size]byte   // of the text
}

// ParseIntermediates reads certificates in PEM. It skips what is no certificate of an authority, and fails
// if nothing is left.
func ParseIntermediates(text []byte) (*Intermediates, error) {
	i := &Intermediates{make(map[string][][]byte), sha256.Sum256(text)}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" && c.IsCA {
			subject := string(c.RawSubject)
			i.bySubject[subject] = append(i.bySubject[subject], bytes.Clone(c.Raw))
		}
	}
	if len(i.bySubject) == 0 {
		return nil, errors.New("has no certificate of an authority in PEM")
	}
	return i, nil
}

// IsOf reports whether the certificates are those of a text. It is false for nil.
func (i *Intermediates) IsOf(text []byte) bool { return i != nil && i.digest == sha256.Sum256(text) }

// apply makes a handshake verify the certificates of the server as crypto/tls does, and if that fails once
// more with the intermediates. Nil changes nothing.
func (i *Intermediates) apply(config *tls.Config) {
	if i == nil {
		return
	}
	sessions := &datedSessions{ClientSessionCache: config.ClientSessionCache, digest: i.digest}
	if config.ClientSessionCache != nil {
		config.ClientSessionCache = sessions
	}
	config.InsecureSkipVerify = true // VerifyConnection does it
	config.VerifyConnection = func(state tls.ConnectionState) error {
		sessions.ends = state.PeerCertificates[0].NotAfter
		if state.DidResume { // the handshake that made the session has verified them
			return nil
		}
		return i.verify(state.PeerCertificates, config)
	}
}

// verify returns the error that crypto/tls would return.
func (i *Intermediates) verify(sent []*x509.Certificate, config *tls.Config) error {
	options := x509.VerifyOptions{Roots: config.RootCAs, DNSName: config.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range sent[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := sent[0].Verify(options)
	if missing := i.missing(err, sent); len(missing) > 0 {
		for _, c := range missing {
			options.Intermediates.AddCert(c)
		}
		_, err = sent[0].Verify(options)
	}
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: sent, Err: err}
	}
	return nil
}

// missing returns the certificates that may have signed those that were sent, if these were not verified. An
// expired one is left out: the error is then that nothing was sent.
func (i *Intermediates) missing(err error, sent []*x509.Certificate) []*x509.Certificate {
	if err == nil {
		return nil
	}
	all, now := slices.Clone(sent), time.Now()
	for n := 0; n < len(all); n++ {
		for _, der := range i.bySubject[string(all[n].RawIssuer)] {
			c, err := x509.ParseCertificate(der)
			if err == nil && len(all) < len(sent)+maxOffered && !now.Before(c.NotBefore) && !now.After(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
				all = append(all, c)
			}
		}
	}
	return all[len(sent):]
}

// datedSessions uses a session until the certificate of the server ends, as crypto/tls does if it verifies
// certificates itself, and only as long as the intermediates are the same.
type datedSessions struct {
	tls.ClientSessionCache
	digest [sha256.Size]byte // of the intermediates
	ends   time.Time         // of the certificate of this handshake
}

// Put implements [tls.ClientSessionCache].
func (d *datedSessions) Put(key string, session *tls.ClientSessionState) {
	if _, state, err := session.ResumptionState(); err == nil && state != nil {
		state.Extra = append(state.Extra, binary.BigEndian.AppendUint64(d.digest[:], uint64(d.ends.Unix())))
	}
	d.ClientSessionCache.Put(key, session)
}

// Get implements [tls.ClientSessionCache].
func (d *datedSessions) Get(key string) (*tls.ClientSessionState, bool) {
	session, _ := d.ClientSessionCache.Get(key)
	_, state, err := session.ResumptionState()
	if err != nil || state == nil || len(state.Extra) == 0 {
		return nil, false
	}
	date, ok := bytes.CutPrefix(state.Extra[0], d.digest[:])
	if !ok || time.Now().Unix() >= int64(binary.BigEndian.Uint64(date)) {
		return nil, false
	}
	return session, true
}
