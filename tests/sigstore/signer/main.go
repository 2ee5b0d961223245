// Signs a statement without a key, by the client of Fulcio and Rekor that cosign 3 is built on. Reads a request
// from standard input and writes the bundle to standard output. With a trusted root, that client verifies what it
// made.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"google.golang.org/protobuf/encoding/protojson"
)

type request struct {
	// Base URL of both services.
	Instance string `json:"instance"`
	// Who signs, as a JSON web token.
	Token string `json:"token"`
	// An in-toto statement.
	Statement string `json:"statement"`
	// Whether its log is of the second version, which states no time: an authority for timestamps does.
	Newer bool `json:"newer"`
	// A trusted_root.json; empty: what is made is not verified.
	Root string `json:"root"`
}

func main() {
	bundle, err := signed()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout.Write(bundle)
}

func signed() ([]byte, error) {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return nil, err
	}
	keypair, err := sign.NewEphemeralKeypair(nil)
	if err != nil {
		return nil, err
	}
	rekor := &sign.RekorOptions{BaseURL: asked.Instance, Version: 1}
	timestamps := []*sign.TimestampAuthority{}
	if asked.Newer {
		rekor.Version = 2
		given := &sign.TimestampAuthorityOptions{URL: asked.Instance + "/api/v1/timestamp"}
		timestamps = append(timestamps, sign.NewTimestampAuthority(given))
	}
	options := sign.BundleOptions{
		CertificateProvider:        sign.NewFulcio(&sign.FulcioOptions{BaseURL: asked.Instance}),
		CertificateProviderOptions: &sign.CertificateProviderOptions{IDToken: asked.Token},
		TimestampAuthorities:       timestamps,
		TransparencyLogs:           []sign.Transparency{sign.NewRekor(rekor)},
	}
	if asked.Root != "" {
		trusted, err := root.NewTrustedRootFromJSON([]byte(asked.Root))
		if err != nil {
			return nil, err
		}
		options.TrustedRoot = trusted
	}
	content := &sign.DSSEData{Data: []byte(asked.Statement), PayloadType: "application/vnd.in-toto+json"}
	bundle, err := sign.Bundle(content, keypair, options)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(bundle)
}
