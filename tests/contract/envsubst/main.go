// Flux's substitution of variables behind a pipe: JSON lines in, JSON lines out.
//
// In: {"text", "values": {name: value}}. Out: {"made"}, or {"error"} where Flux refuses the text.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/fluxcd/pkg/envsubst"
)

type request struct {
	Text   string            `json:"text"`
	Values map[string]string `json:"values"`
}

type reply struct {
	Made  string `json:"made"`
	Error string `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	replies := json.NewEncoder(os.Stdout)
	replies.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		made, err := envsubst.Eval(asked.Text, func(name string) (string, bool) {
			value, found := asked.Values[name]
			return value, found
		})
		answer := reply{Made: made}
		if err != nil {
			answer = reply{Error: err.Error()}
		}
		if err := replies.Encode(answer); err != nil {
			panic(err)
		}
	}
}
