// Shows the OpenAPI document of this server, with its requests to try.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#requests",
  deepLinking: true,
  displayRequestDuration: true,
  syntaxHighlight: false, // thousands of numbers take seconds to colour
  defaultModelsExpandDepth: -1,
  validatorUrl: null, // nothing is sent to other hosts
});
