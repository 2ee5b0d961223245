// The evaluator of flagd's own core behind a pipe: JSON lines in, JSON lines out.
//
// In: {"definitions": text, "asks": [{"key", "type", "context": text}]}, where `type` is "boolean", "string",
// "integer", "float", "object" or "any". Out: {"now", "asked_until": Unix seconds before and after, "refused": text
// of the error where flagd does not load the definitions, "answers": [{"value", "variant", "reason", "error",
// "metadata"}]}. flagd reads the clock by itself, so an answer that depends on it holds for seconds from `now` to
// `asked_until`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/open-feature/flagd/core/pkg/evaluator"
	"github.com/open-feature/flagd/core/pkg/logger"
	"github.com/open-feature/flagd/core/pkg/store"
	"github.com/open-feature/flagd/core/pkg/sync"
	"go.uber.org/zap"
)

const source = "oracle"

type ask struct {
	Key     string `json:"key"`
	Type    string `json:"type"`
	Context string `json:"context"`
}

type request struct {
	Definitions string `json:"definitions"`
	Asks        []ask  `json:"asks"`
}

type answer struct {
	Value    any            `json:"value"`
	Variant  string         `json:"variant"`
	Reason   string         `json:"reason"`
	Error    string         `json:"error,omitempty"`
	Metadata map[string]any `json:"metadata"`
}

type response struct {
	Now        int64    `json:"now"`
	AskedUntil int64    `json:"asked_until"`
	Refused    string   `json:"refused,omitempty"`
	Answers    []answer `json:"answers"`
}

func main() {
	log := logger.NewLogger(zap.NewNop(), false)
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
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := replies.Encode(respond(log, asked)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func respond(log *logger.Logger, asked request) response {
	reply := response{Now: time.Now().Unix(), Answers: []answer{}}
	flags, err := store.NewStore(log, []string{source})
	if err != nil {
		reply.Refused = err.Error()
		return reply
	}
	core := evaluator.NewJSON(log, flags)
	if err := core.SetState(sync.DataSync{FlagData: asked.Definitions, Source: source}); err != nil {
		reply.Refused = err.Error()
		return reply
	}
	for _, each := range asked.Asks {
		reply.Answers = append(reply.Answers, resolve(core, each))
	}
	reply.AskedUntil = time.Now().Unix()
	return reply
}

func resolve(core *evaluator.JSON, asked ask) (found answer) {
	defer func() {
		if cause := recover(); cause != nil {
			found = answer{Reason: "ERROR", Error: fmt.Sprintf("CRASH %v", cause)}
		}
	}()
	given := map[string]any{}
	if err := json.Unmarshal([]byte(asked.Context), &given); err != nil {
		return answer{Reason: "ERROR", Error: "INVALID_CONTEXT"}
	}
	ctx := context.WithValue(context.Background(), store.SelectorContextKey{}, store.Selector{})
	var err error
	switch asked.Type {
	case "boolean":
		found.Value, found.Variant, found.Reason, found.Metadata, err = core.ResolveBooleanValue(ctx, "", asked.Key, given)
	case "string":
		found.Value, found.Variant, found.Reason, found.Metadata, err = core.ResolveStringValue(ctx, "", asked.Key, given)
	case "integer":
		found.Value, found.Variant, found.Reason, found.Metadata, err = core.ResolveIntValue(ctx, "", asked.Key, given)
	case "float":
		found.Value, found.Variant, found.Reason, found.Metadata, err = core.ResolveFloatValue(ctx, "", asked.Key, given)
	case "object":
		found.Value, found.Variant, found.Reason, found.Metadata, err = core.ResolveObjectValue(ctx, "", asked.Key, given)
	default:
		any := core.ResolveAsAnyValue(ctx, "", asked.Key, given)
		found.Value, found.Variant, found.Reason, found.Metadata, err = any.Value, any.Variant, any.Reason, any.Metadata, any.Error
	}
	if err != nil {
		found.Error = err.Error()
	}
	return found
}
