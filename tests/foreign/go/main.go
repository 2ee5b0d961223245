// Asks flagd's published provider for Go; the arguments and the lines are those of tests/node/ask.mjs.
//
// ASK_TOKEN is a bearer token that is sent over TLS, with the authority of FLAGD_SERVER_CERT_PATH.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strconv"
	"sync"

	flagd "github.com/open-feature/go-sdk-contrib/providers/flagd/pkg"
	"github.com/open-feature/go-sdk/openfeature"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

type question struct {
	Kind     string         `json:"kind"`
	Key      string         `json:"key"`
	Fallback any            `json:"fallback"`
	Context  map[string]any `json:"context"`
}

type bearer string

func (token bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(token)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

var lock sync.Mutex

func say(said any) {
	lock.Lock()
	defer lock.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}

func options() []flagd.ProviderOption {
	port, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err != nil {
		panic(err)
	}
	chosen := []flagd.ProviderOption{flagd.WithHost("127.0.0.1"), flagd.WithPort(uint16(port))}
	if os.Args[1] == "flagd-in-process" {
		chosen = append(chosen, flagd.WithInProcessResolver())
	}
	if token := os.Getenv("ASK_TOKEN"); token != "" {
		transport, err := credentials.NewClientTLSFromFile(os.Getenv("FLAGD_SERVER_CERT_PATH"), "")
		if err != nil {
			panic(err)
		}
		chosen = append(chosen, flagd.WithGrpcDialOptionsOverride([]grpc.DialOption{
			grpc.WithTransportCredentials(transport), grpc.WithPerRPCCredentials(bearer(token)),
		}))
	}
	return chosen
}

func answer(client *openfeature.Client, asked question) map[string]any {
	key, _ := asked.Context["targetingKey"].(string)
	where := openfeature.NewEvaluationContext(key, asked.Context)
	details, err := client.ObjectValueDetails(context.Background(), asked.Key, asked.Fallback, where)
	if text, is := asked.Fallback.(string); is {
		found, problem := client.StringValueDetails(context.Background(), asked.Key, text, where)
		details = openfeature.InterfaceEvaluationDetails{Value: found.Value, EvaluationDetails: found.EvaluationDetails}
		err = problem
	}
	said := map[string]any{"value": details.Value, "variant": details.Variant, "reason": details.Reason}
	if err != nil {
		said["errorCode"] = details.ErrorCode
	}
	return said
}

func main() {
	provider, err := flagd.NewProvider(options()...)
	if err != nil {
		panic(err)
	}
	changed := func(openfeature.EventDetails) { say(map[string]string{"event": "changed"}) }
	openfeature.AddHandler(openfeature.ProviderConfigChange, &changed)
	if err := openfeature.SetProviderAndWait(provider); err != nil {
		panic(err)
	}
	client := openfeature.NewClient("ask")
	say(map[string]string{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		say(answer(client, asked))
	}
	openfeature.Shutdown()
}
