import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.openfeature.contrib.providers.flagd.Config;
import dev.openfeature.contrib.providers.flagd.FlagdOptions;
import dev.openfeature.contrib.providers.flagd.FlagdProvider;
import dev.openfeature.sdk.Client;
import dev.openfeature.sdk.EvaluationContext;
import dev.openfeature.sdk.FlagEvaluationDetails;
import dev.openfeature.sdk.ImmutableContext;
import dev.openfeature.sdk.OpenFeatureAPI;
import dev.openfeature.sdk.Structure;
import dev.openfeature.sdk.Value;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/**
 * Asks flagd's published provider; the arguments and the lines are those of tests/node/ask.mjs. ASK_TOKEN is a bearer
 * token that is sent.
 */
public final class Ask {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        boolean inProcess = arguments[0].equals("flagd-in-process");
        FlagdOptions.FlagdOptionsBuilder builder = FlagdOptions.builder();
        String token = System.getenv("ASK_TOKEN");
        if (token != null) {
            Metadata header = new Metadata();
            header.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
            builder.clientInterceptors(List.of(MetadataUtils.newAttachHeadersInterceptor(header)));
        }
        FlagdOptions options = builder
                .resolverType(inProcess ? Config.Resolver.IN_PROCESS : Config.Resolver.RPC)
                .host("127.0.0.1")
                .port(Integer.parseInt(arguments[1]))
                .deadline(10_000)
                .build();
        OpenFeatureAPI api = OpenFeatureAPI.getInstance();
        api.onProviderConfigurationChanged(details -> say(JSON.createObjectNode().put("event", "changed")));
        api.setProviderAndWait(new FlagdProvider(options));
        Client client = api.getClient();
        say(JSON.createObjectNode().put("event", "ready"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            say(answer(client, JSON.readTree(line)));
        }
        api.shutdown();
        System.exit(0);
    }

    private static ObjectNode answer(Client client, JsonNode asked) {
        String key = asked.get("key").asText();
        JsonNode fallback = asked.get("fallback");
        EvaluationContext context = context(asked.get("context"));
        FlagEvaluationDetails<?> details = switch (asked.get("kind").asText()) {
            case "boolean" -> client.getBooleanDetails(key, fallback.asBoolean(), context);
            case "string" -> client.getStringDetails(key, fallback.asText(), context);
            case "number" -> client.getDoubleDetails(key, fallback.asDouble(), context);
            default -> client.getObjectDetails(key, new Value(), context);
        };
        Object value = details.getValue();
        ObjectNode said = JSON.createObjectNode();
        said.set("value", JSON.valueToTree(value instanceof Value ? plain((Value) value) : value));
        said.put("variant", details.getVariant());
        said.put("reason", details.getReason());
        if (details.getErrorCode() != null) {
            said.put("errorCode", details.getErrorCode().name());
        }
        return said;
    }

    private static EvaluationContext context(JsonNode given) {
        Map<String, Object> fields = JSON.convertValue(given, Map.class);
        Map<String, Value> values = Structure.mapToStructure(fields).asMap();
        return new ImmutableContext(fields.getOrDefault("targetingKey", "").toString(), values);
    }

    private static Object plain(Value value) {
        return value.isStructure() ? value.asStructure().asObjectMap() : value.asObject();
    }

    private static synchronized void say(JsonNode said) {
        System.out.println(said);
    }
}
